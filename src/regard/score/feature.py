"""Feature maps φ(q)·φ(k), the score of linear attention: https://arxiv.org/abs/2006.16236."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Pair, RegardError, Score, Sizes
from regard.score.dot import Product

MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    # e^x as it is below zero: in elu(x) + 1 the one would swallow it
    "elu+1": lambda x: torch.where(x > 0, x + 1, torch.exp(x.clamp(max=0))),
    "relu": torch.relu,
    "exp": torch.exp,
    "identity": lambda x: x,
}


@dataclass(frozen=True, repr=False)
class Feature(Score):
    """φ(q)·φ(k), unscaled, with φ applied to each number: `map` is "elu+1", "relu", "exp", "identity" or a callable.

    >>> Feature("relu")(torch.tensor([[1.0, -5.0]]), torch.tensor([[2.0, 3.0]]))
    tensor([[2.]])
    """

    map: str | Callable[[Tensor], Tensor] = "elu+1"

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls()]

    def misfit(self, sizes: Sizes) -> str | None:
        if callable(self.map) or self.map in MAPS:
            return None
        return f"Feature map must be a callable or one of {', '.join(map(repr, MAPS))}, got {self.map!r}."

    def features(self, x: Tensor) -> Tensor:
        """φ(x)."""
        if not callable(self.map):
            return MAPS[self.map](x)
        made = self.map(x)
        if not isinstance(made, Tensor) or made.shape[:-1] != x.shape[:-1]:
            got = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
            raise RegardError(f"a Feature map must return (…, i, features) for {tuple(x.shape)}, got {got}.")
        return made

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return self.features(query) @ self.features(key).transpose(-1, -2)

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        return self.features(query), self.features(key), Product()

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        return self.features(query), self.features(key), 1.0
