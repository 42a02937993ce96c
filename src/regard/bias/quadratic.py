"""A quadratic bias on image positions, by which attention expresses convolution: https://arxiv.org/abs/1911.03584."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Bias, Sizes


@dataclass(frozen=True, repr=False, eq=False)
class Quadratic(Bias):
    """−alpha·‖δ − centre‖² on a height × width image, where δ is the step (rows, columns) from query to key.

    >>> Quadratic(1, 3, torch.tensor([1.0]), torch.tensor([[0.0, 1.0]]))(0, 0, 0, torch.arange(3))
    tensor([-1., -0., -1.])

    One `alpha` and one `centre` per head, (heads,) and (heads, 2); a large alpha looks at one pixel alone.
    """

    height: int
    width: int
    alpha: Tensor
    centre: Tensor

    @classmethod
    def samples(cls) -> Sequence[Self]:
        alpha = torch.tensor([0.5, 1.2], dtype=torch.float64)
        return [cls(2, 3, alpha, torch.tensor([[0.0, 1.0], [-0.7, 0.4]], dtype=torch.float64))]

    def misfit(self, sizes: Sizes) -> str | None:
        cells = self.height * self.width
        if not sizes.n == sizes.m == cells:
            return (
                f"Quadratic({self.height}, {self.width}) has {cells} cells and needs as many queries and keys,"
                f" got {sizes.n} queries and {sizes.m} keys."
            )
        if tuple(self.alpha.shape) != (sizes.h,) or tuple(self.centre.shape) != (sizes.h, 2):
            return (
                f"Quadratic alpha and centre must be (heads,)=({sizes.h},) and (heads, 2)=({sizes.h}, 2),"
                f" got shapes {tuple(self.alpha.shape)} and {tuple(self.centre.shape)}."
            )
        return None

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        i, j = torch.as_tensor(i), torch.as_tensor(j)
        down = j // self.width - i // self.width - self.centre[h, 0]
        right = j % self.width - i % self.width - self.centre[h, 1]
        return -self.alpha[h] * (down * down + right * right)
