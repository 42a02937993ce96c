"""A bias given as a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from regard.core import Bias, Sizes, Tile
from regard.core.biases import reduce_to


@dataclass(frozen=True, repr=False, eq=False)
class Dense(Bias):
    """Any tensor that broadcasts to the scores, added to them. `attend(bias=tensor)` does the same.

    >>> Dense(torch.zeros(8, 1, 1))
    Dense(values=float32[8, 1, 1])
    """

    values: Tensor
    # its own rule says more about a tensor of another kind
    learns = False

    @classmethod
    def samples(cls) -> Sequence[Self]:
        noise = torch.Generator().manual_seed(5)
        return [cls(torch.randn(s, generator=noise, dtype=torch.float64)) for s in ((2, 5, 7), (2, 1, 1, 7))]

    def misfit(self, sizes: Sizes) -> str | None:
        if not self.values.is_floating_point():
            kind = str(self.values.dtype).removeprefix("torch.")
            hint = " a bool mask belongs in mask=." if self.values.dtype == torch.bool else ""
            return (
                f"bias must be floating point, got {kind}:{hint}"
                if hint
                else f"bias must be floating point, got {kind}."
            )
        if self.values.device != sizes.device:
            return f"{self} must hold tensors on the query's device {sizes.device}, got one on {self.values.device}."
        if not sizes.takes(self.values):
            return f"bias must broadcast to the scores {sizes.pairs}, got shape {tuple(self.values.shape)}."
        return None

    def settle(self, sizes: Sizes) -> Self:
        return replace(self, values=sizes.fold(self.values))

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        at = (x if size > 1 else 0 for x, size in zip((b, h, i, j), self.values.shape, strict=True))
        return self.values[tuple(at)]

    def tile(self, tile: Tile) -> Tensor:
        return tile.slice(self.values)

    def add_gradients(self, tile: Tile, grad: Tensor, into: tuple[Tensor, ...]) -> None:
        part = tile.slice(into[0])
        part += reduce_to(grad, part.shape)
