"""What every attention layer has: one `attend` call, and a look at its weights afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import Tensor, nn

from regard.core import Bias, Mask, Score, Term, Weigh
from regard.core.bits import draw_seed
from regard.engine import attend, find_weights
from regard.mask import Full
from regard.score import Dot
from regard.weigh import Hard, Softmax

T = TypeVar("T", bound=object)


@dataclass(frozen=True, eq=False)
class Seen:
    """What the weights of a call are made of: O(n) numbers, without gradients."""

    query: Tensor
    key: Tensor
    score: Score | Callable[[Tensor, Tensor], Tensor]
    weigh: Weigh
    mask: Mask | Tensor
    bias: Bias | Tensor | None


class Attention(nn.Module):
    """A layer that calls `attend` and can show its weights.

    A layer calls `self._attend` in place of `attend`; all else is its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: Seen | None = None
        self._weights: Tensor | None = None

    @property
    def attention_weights(self) -> Tensor | None:
        """The weights of the last call, (batch, queries, keys) or (batch, heads, queries, keys), before dropout.

        They are made when first read, and not at all if nobody asks; None before the first call. Between the call and
        the first look its inputs must not be changed in place.
        """
        if self._weights is None and self._seen is not None:
            seen = self._seen
            self._weights = find_weights(
                seen.query, seen.key, score=seen.score, weigh=seen.weigh, mask=seen.mask, bias=seen.bias
            )
        return self._weights

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        score: Score | Callable[[Tensor, Tensor], Tensor] = Dot(),
        weigh: Weigh = Softmax(),
        mask: Mask | Tensor = Full(),
        bias: Bias | Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        """`attend`, with dropout in training alone, remembered for `attention_weights`."""
        if isinstance(weigh, Hard) and weigh.how == "sample" and weigh.seed is None:
            # the draw of this call, also when it is looked at
            weigh = replace(weigh, seed=draw_seed(weigh.generator))
        self._weights = None
        self._seen = Seen(query.detach(), key.detach(), _copy(score), _copy(weigh), mask, _copy(bias))
        rate = dropout if self.training else 0.0
        return attend(query, key, value, score=score, weigh=weigh, mask=mask, bias=bias, dropout=rate)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files are of the layer, not of its last call."""
        return {**self.__dict__, "_seen": None, "_weights": None}


def _copy(term: T) -> T:
    """The term without gradients, and with its own numbers: an optimiser changes parameters in place."""
    if isinstance(term, Tensor):
        return term.detach().clone()  # type: ignore[return-value]
    if not isinstance(term, Term) or not term.tensors:
        return term
    return term.with_tensors([x.detach().clone() for x in term.tensors])
