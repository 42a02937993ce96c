"""Cosine similarity of query and key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Pair, Score, Sizes
from regard.score.dot import Product


@dataclass(frozen=True, repr=False, eq=False)
class Cosine(Score):
    """Cosine similarity of q and k, times `scale` (a number, or a tensor with one per head).

    >>> Cosine()(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 5.0]]))
    tensor([[1., 0.]])

    A vector of zeros has no direction: its cosine is zero.
    """

    scale: float | Tensor = 1.0
    keeps_range = True

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(scale=2.0), cls(scale=torch.tensor([1.5, 3.0], dtype=torch.float64))]

    @classmethod
    def start(cls, heads: int, width: int) -> dict[str, Tensor]:
        return {"scale": torch.ones(heads)}

    def misfit(self, sizes: Sizes) -> str | None:
        if isinstance(self.scale, Tensor) and tuple(self.scale.shape) not in ((), (1,), (sizes.h,)):
            return f"Cosine scale must be a number or one per head ({sizes.h},), got shape {tuple(self.scale.shape)}."
        return None

    def _rows(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        scale = self.scale
        if isinstance(scale, Tensor) and scale.ndim == 1 and scale.shape[0] > 1:
            scale = scale[:, None, None]
        return _unit(query) * scale, _unit(key)

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        query, key = self._rows(query, key)
        return query @ key.transpose(-1, -2)

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        return *self._rows(query, key), Product()

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        return *self._rows(query, key), 1.0


def _unit(x: Tensor) -> Tensor:
    # divide by the largest entry first, so that squares neither overflow nor vanish
    if x.shape[-1] == 0:
        return x
    peak = x.detach().abs().amax(-1, keepdim=True)
    x = x / torch.where(peak > 0, peak, 1.0)
    square = (x * x).sum(-1, keepdim=True)
    return x * torch.where(square > 0, square, 1.0).rsqrt()
