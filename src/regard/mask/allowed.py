"""A mask given as a bool tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from regard.core import Mask, Sizes, Tile


@dataclass(frozen=True, repr=False, eq=False)
class Allowed(Mask):
    """Any bool tensor that broadcasts to the scores, True = attend. `attend(mask=tensor)` does the same.

    >>> Allowed(torch.tensor([[True, False]]))
    Allowed(allowed=bool[1, 2])
    """

    allowed: Tensor

    @classmethod
    def samples(cls) -> Sequence[Self]:
        noise = torch.Generator().manual_seed(4)
        return [cls(torch.rand(2, 1, 5, 7, generator=noise) < 0.6), cls(torch.rand(2, 5, 1, generator=noise) < 0.5)]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.allowed.dtype != torch.bool:
            kind = str(self.allowed.dtype).removeprefix("torch.")
            return f"mask must be bool (True = attend), got {kind}: numbers added to the scores belong in bias=."
        if self.allowed.device != sizes.device:
            return f"mask must lie on the query's device {sizes.device}, got {self.allowed.device}."
        if not sizes.takes(self.allowed):
            return f"mask must broadcast to the scores {sizes.pairs}, got shape {tuple(self.allowed.shape)}."
        return None

    def settle(self, sizes: Sizes) -> Self:
        return replace(self, allowed=sizes.fold(self.allowed))

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        shape = (1,) * (4 - self.allowed.ndim) + tuple(self.allowed.shape)
        at = (x if size > 1 else 0 for x, size in zip((b, h, i, j), shape, strict=True))
        return self.allowed.view(shape)[tuple(at)]

    def tile(self, tile: Tile) -> Tensor:
        return tile.slice(self.allowed)
