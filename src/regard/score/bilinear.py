"""Bilinear (Luong's general) scores, a dot product through a learned matrix: https://arxiv.org/abs/1508.04025."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Pair, Score, Sizes
from regard.score.dot import Product


@dataclass(frozen=True, repr=False, eq=False)
class Bilinear(Score):
    """Bilinear (Luong's general) score q·W·k of widths d and c: `weight` is (d, c), or (heads, d, c).

    >>> Bilinear(torch.tensor([[1.0, 2.0]]))(torch.ones(1, 1), torch.ones(3, 2))
    tensor([[3., 3., 3.]])
    """

    weight: Tensor
    any_widths = True

    @classmethod
    def samples(cls) -> Sequence[Self]:
        noise = torch.Generator().manual_seed(1)
        return [cls(torch.randn(2, 3, 3, generator=noise, dtype=torch.float64))]

    @classmethod
    def start(cls, heads: int, width: int) -> dict[str, Tensor]:
        # Xavier's bound, whose fans are of one head's matrix
        bound = (3 / width) ** 0.5
        return {"weight": torch.empty(heads, width, width).uniform_(-bound, bound)}

    def misfit(self, sizes: Sizes) -> str | None:
        shape = tuple(self.weight.shape)
        if shape in ((sizes.d, sizes.c), (sizes.h, sizes.d, sizes.c)):
            return None
        return (
            f"Bilinear weight must be (d, c)=({sizes.d}, {sizes.c}) or (heads, d, c)=({sizes.h}, {sizes.d}, {sizes.c})"
            f" for query d={sizes.d} and key c={sizes.c}, got shape {shape}."
        )

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return (query @ self.weight) @ key.transpose(-1, -2)

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        return query @ self.weight, key, Product()

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        return query @ self.weight, key, 1.0
