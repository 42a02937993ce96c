"""A score of one's own: the Laplace kernel's exponent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Score, Sizes


@dataclass(frozen=True, repr=False, eq=False)
class Laplace(Score):
    """−Σ_f w_f·|q_f − k_f|, the city-block distance, with a weight for each feature: (d,), or (heads, d).

    >>> Laplace(torch.tensor([2.0]))(torch.zeros(1, 1), torch.tensor([[0.0], [1.0]]))
    tensor([[-0., -2.]])
    """

    weight: Tensor

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(torch.tensor([[0.5, 1.0, 1.5], [1.2, 0.3, 0.8]], dtype=torch.float64))]

    @classmethod
    def start(cls, heads: int, width: int) -> dict[str, Tensor]:
        return {"weight": torch.full((heads, width), width**-0.5)}

    def misfit(self, sizes: Sizes) -> str | None:
        shape = tuple(self.weight.shape)
        if shape in ((sizes.d,), (sizes.h, sizes.d)):
            return None
        return f"Laplace weight must be (d,)=({sizes.d},) or (heads, d)=({sizes.h}, {sizes.d}), got shape {shape}."

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        weight = self.weight[:, None, None] if self.weight.ndim == 2 else self.weight
        return -((query.unsqueeze(-2) - key.unsqueeze(-3)).abs() * weight).sum(-1)
