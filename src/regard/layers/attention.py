"""The base class of attention layers: one call of `attend`, and its weights to look at afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.core import Bias, Mask, RegardError, Score, Term, Weigh
from regard.core.bits import draw_seed
from regard.engine import attend, find_weights
from regard.mask import Full
from regard.score import SCORES, Custom, Dot
from regard.weigh import Hard, Softmax

T = TypeVar("T", bound=object)
# scores that learn nothing, by their class
_bare: dict[type[Score], Score] = {}


@dataclass(eq=False, slots=True)
class LastCall:
    """What the weights of a layer's last call are recomputed from, without gradients: its query, key and terms."""

    query: Tensor
    key: Tensor
    score: Score | Callable[[Tensor, Tensor], Tensor]
    weigh: Weigh
    mask: Mask | Tensor
    bias: Bias | Tensor | None
    # how often each tensor had been changed in place; not known within a compiled function
    versions: tuple[int, ...] = ()

    def list_tensors(self) -> list[Tensor]:
        """Every tensor that is still the caller's, who may change it in place."""
        found = [self.query, self.key]
        for part in (self.score, self.weigh, self.mask, self.bias):
            # the usual terms hold none: to ask each of them takes longer than all else here
            if _is_bare(part):
                continue
            if isinstance(part, Custom):
                part = part.function
            if isinstance(part, nn.Module):
                found += part.parameters()
            elif isinstance(part, Tensor):
                found.append(part)
            elif isinstance(part, Term):
                found += part.all_tensors
        return found


class Attention(nn.Module):
    """A layer that calls `attend` and can show its weights.

    A layer calls `self._attend` in place of `attend`; all else is its own. It keeps the call's query and key for that
    until the next call; `shows_weights = False` keeps nothing.
    """

    shows_weights = True
    # the score that the layer owns the tensors of, if it does, and their names
    _kind: type[Score] = Dot
    _learned: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self._last_call: LastCall | None = None
        self._weights: Tensor | None = None

    @property
    def attention_weights(self) -> Tensor | None:
        """The weights of the last call, (batch, queries, keys) or (batch, heads, queries, keys), before dropout.

        They are computed when first read, and not at all if nobody asks; None before the first call. Between the call
        and the first look its inputs must not be changed in place, nor what a function given as score closes over.
        """
        if self._weights is None and (seen := self._recall()):
            self._weights = find_weights(
                seen.query, seen.key, score=seen.score, weigh=seen.weigh, mask=seen.mask, bias=seen.bias
            )
        return self._weights

    def _recall(self) -> LastCall | None:
        """The last call, unless what it was given is no longer the same."""
        seen = self._last_call
        if seen is not None and seen.versions and seen.versions != _list_versions(seen):
            raise RegardError(
                f"{type(self).__name__} attention_weights cannot be made any more: what the call was given has been"
                " changed in place. Read them right after the call."
            )
        return seen

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
        backend: str = "auto",
    ) -> Tensor:
        """`attend`, with dropout in training alone, remembered for `attention_weights`."""
        if isinstance(weigh, Hard) and weigh.how == "sample" and weigh.seed is None:
            # the draw of this call, also when it is looked at
            weigh = replace(weigh, seed=draw_seed(weigh.generator))
        self._remember(query, key, score, weigh, mask, bias)
        rate = dropout if self.training else 0.0
        terms: dict[str, Any] = {"score": score, "weigh": weigh, "mask": mask, "bias": bias}
        return attend(query, key, value, **terms, dropout=rate, backend=backend)

    def _remember(self, query: Tensor, key: Tensor, *terms: Any) -> None:
        """Keep what `attention_weights` are made from: query, key, score, weigher, mask and bias of the last call."""
        seen = None
        if self.shows_weights:
            most = query.numel() + key.numel()
            seen = LastCall(query.detach(), key.detach(), *[_copy(term, most) for term in terms])
            if not torch.compiler.is_compiling():
                seen.versions = _list_versions(seen)
        if torch.compiler.is_compiling():
            self._last_call, self._weights = seen, None
        else:
            # past what a module looks for in each attribute, parameters and others: these are neither
            self.__dict__.update(_last_call=seen, _weights=None)

    def _learn(self, score: str | type[Score], heads: int, width: int, others: str = "") -> str:
        """Make parameters of the tensors that a score learns, called score_ and its own name; the name of the score."""
        called = type(self).__name__
        if isinstance(score, str) and score not in SCORES:
            raise RegardError(f"{called} score must be {others}one of {', '.join(map(repr, SCORES))}, got {score!r}.")
        kind = SCORES[score] if isinstance(score, str) else score
        learned = kind.start(heads, width)
        try:
            kind(**learned)
            parameters = {name: nn.Parameter(x) for name, x in learned.items()}
        # integers have no gradient
        except (TypeError, RuntimeError) as error:
            raise RegardError(
                f"{called} score {kind.__name__} must be made of what its start() gives: {error}."
            ) from None
        self._kind, self._learned = kind, tuple(learned)
        for name, x in parameters.items():
            self.register_parameter(f"score_{name}", x)
        return score if isinstance(score, str) else kind.__name__.lower()

    def _make_score(self, dtype: torch.dtype) -> Score:
        """The score with the layer's parameters, in the dtype of queries, which autocast makes half precision."""
        if not self._learned:
            # the same one each time: what is kept of a call finds it sooner
            if self._kind not in _bare:
                _bare[self._kind] = self._kind()
            return _bare[self._kind]
        return self._kind(**{name: getattr(self, f"score_{name}").to(dtype) for name in self._learned})

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files are of the layer, not of its last call."""
        return {**self.__dict__, "_last_call": None, "_weights": None}


def _is_bare(part: object) -> bool:
    """Whether this is one of the usual terms without a tensor."""
    return part is None or type(part) in (Dot, Full) or (type(part) is Softmax and part.sink is None)


def _copy(term: T, most: int) -> T:
    """The term without gradients, and with its own numbers, since an optimiser changes parameters in place.

    What has more than `most` numbers, as a dense bias, stays the caller's.
    """
    if isinstance(term, Tensor):
        return _take(term, most)  # type: ignore[return-value]
    if _is_bare(term) or not isinstance(term, Term) or not term.tensors:
        return term
    return term.with_tensors([_take(x, most) for x in term.tensors])


def _take(x: Tensor, most: int) -> Tensor:
    return x.detach().clone() if x.numel() <= most else x.detach()


def _list_versions(seen: LastCall) -> tuple[int, ...]:
    # tensors of inference mode are not counted, nor can they be changed outside of it
    return tuple(0 if x.is_inference() else x._version for x in seen.list_tensors())
