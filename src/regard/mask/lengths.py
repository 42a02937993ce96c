"""A padding mask: sequences of different lengths in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from regard.core import Mask, Sizes, Tile
from regard.mask.integer import misfit_integers


@dataclass(frozen=True, repr=False, eq=False)
class Lengths(Mask):
    """Padding mask, only the first `lengths` keys: one length per sequence, `(b,)`, or per query, `(b, i)`.

    >>> Lengths(torch.tensor([2]))(0, 0, 0, torch.arange(3))
    tensor([ True,  True, False])
    """

    lengths: Tensor

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(torch.tensor([4, 0])), cls(torch.tensor([[1, 3, 0, 7, 2], [5, 5, 1, 2, 6]]))]

    def misfit(self, sizes: Sizes) -> str | None:
        shapes = {"(b,)": (sizes.b,), "(b, i)": (sizes.b, sizes.n)}
        if tuple(self.lengths.shape) not in (*shapes.values(), sizes.lead, (*sizes.lead, sizes.n)):
            return (
                f"Lengths must be one per sequence (b,)=({sizes.b},) or one per query (b, i)=({sizes.b}, {sizes.n}),"
                f" got shape {tuple(self.lengths.shape)}."
            )
        return misfit_integers("lengths", self.lengths, sizes.device, 0, sizes.m, "the number of keys")

    def settle(self, sizes: Sizes) -> Self:
        per_sequence = tuple(self.lengths.shape) in ((sizes.b,), sizes.lead)
        return replace(self, lengths=self.lengths.reshape(sizes.b, 1, 1 if per_sequence else sizes.n, 1))

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        lengths = self.lengths
        if lengths.ndim < 4:
            # not settled: written by hand
            lengths = lengths.reshape(lengths.shape[0], 1, -1, 1)
        return j < lengths[b, 0, i if lengths.shape[2] > 1 else 0, 0]

    def tile(self, tile: Tile) -> Tensor:
        return torch.arange(tile.j.start, tile.j.stop, device=tile.device) < tile.slice(self.lengths)

    def span(self, tile: Tile) -> range:
        lengths = tile.slice(self.lengths)
        longest = int(lengths.max()) if lengths.numel() else 0
        return range(tile.j.start, max(min(tile.j.stop, longest), tile.j.start))

    def covers(self, tile: Tile) -> bool:
        lengths = tile.slice(self.lengths)
        return lengths.numel() > 0 and int(lengths.min()) >= tile.j.stop
