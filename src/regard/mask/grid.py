"""A mask of neighbourhoods in an image whose pixels or patches are laid out row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Mask, Sizes, Tile


@dataclass(frozen=True, repr=False)
class Grid(Mask):
    """Image neighbourhood mask: cell i of a height × width image sees the cells at most `radius` rows and columns away.

    >>> Grid(2, 3, radius=1)(0, 0, 0, torch.arange(6))
    tensor([ True,  True, False,  True,  True, False])

    `radius` is a number, or (rows, columns).
    """

    height: int
    width: int
    radius: int | tuple[int, int] = 1

    @classmethod
    def samples(cls) -> Sequence[Self]:
        # the suite's other calls have 5 queries and 7 keys: grids are tried on square ones
        return [cls(2, 3), cls(3, 2, radius=(0, 1))]

    def misfit(self, sizes: Sizes) -> str | None:
        cells = self.height * self.width
        if not sizes.n == sizes.m == cells:
            return (
                f"Grid({self.height}, {self.width}) has {cells} cells and needs as many queries and keys,"
                f" got {sizes.n} queries and {sizes.m} keys."
            )
        if min(self._radii) < 0:
            return f"Grid radius must be at least 0, got {self.radius}."
        return None

    @property
    def _radii(self) -> tuple[int, int]:
        return (self.radius, self.radius) if isinstance(self.radius, int) else self.radius

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        rows, columns = self._radii
        i, j = torch.as_tensor(i), torch.as_tensor(j)
        apart = (i // self.width - j // self.width).abs() <= rows
        return apart & ((i % self.width - j % self.width).abs() <= columns)

    def span(self, tile: Tile) -> range:
        rows, columns = self._radii
        start = max(tile.j.start, tile.i.start - rows * self.width - columns)
        stop = min(tile.j.stop, tile.i.stop + rows * self.width + columns)
        return range(start, max(start, stop))
