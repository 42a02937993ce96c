"""Any function of two tiles as a score, with gradients also for the tensors it closes over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from regard.core import Score
from regard.core.closures import check_scores


def _list_state(function: object) -> dict[str, Tensor]:
    if not isinstance(function, nn.Module):
        return {}
    # by all of its names: what has two would be put back under one of them alone
    return {
        **dict(function.named_parameters(remove_duplicate=False)),
        **dict(function.named_buffers(remove_duplicate=False)),
    }


def _sample(query: Tensor, key: Tensor) -> Tensor:
    return torch.sin(query @ key.transpose(-1, -2)) - (query.unsqueeze(-2) - key.unsqueeze(-3)).pow(2).mean(-1)


@dataclass(frozen=True, repr=False)
class Custom(Score):
    """A score of your own: a function or module of two tiles. `attend(score=function)` does the same.

    >>> Custom(lambda query, key: query @ key.mT)(torch.ones(1, 2), torch.ones(3, 2))
    tensor([[2., 2., 2.]])

    It must treat pairs independently, since it sees one tile at a time.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    any_widths = True
    # it may hold weights in that dtype
    keeps_dtype = True

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(_sample)]

    @property
    def all_tensors(self) -> tuple[Tensor, ...]:
        """The parameters and buffers of a module; what a plain function closes over, nobody can replace."""
        return tuple(_list_state(self.function).values())

    def with_all_tensors(self, tensors: Iterable[Tensor]) -> Self:
        module, names = self.function, _list_state(self.function)
        if not isinstance(module, nn.Module):
            return self
        state = dict(zip(names, tensors, strict=False))
        # each name has its own, also where two are of one tensor
        call = partial(functional_call, module, state, tie_weights=False)
        return replace(self, function=lambda query, key: call((query, key)))

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        scores = self.function(query, key)
        check_scores(scores, query, key)
        return scores

    @property
    def called(self) -> str:
        return getattr(self.function, "__name__", None) or type(self.function).__name__
