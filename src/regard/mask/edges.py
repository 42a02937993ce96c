"""A mask of graph edges: a query attends to its neighbours alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from regard.core import Mask, Sizes, Tile
from regard.mask.integer import misfit_integers


@dataclass(frozen=True, repr=False, eq=False)
class Edges(Mask):
    """Graph mask: edge t lets query `queries[t]` attend to key `keys[t]`, in every sequence and head.

    >>> Edges(torch.tensor([0, 0]), torch.tensor([1, 2]))(0, 0, torch.tensor([[0], [1]]), torch.arange(3))
    tensor([[False,  True,  True],
            [False, False, False]])

    An edge given twice counts once. For PyG's `edge_index`, queries are row 1 (targets), keys row 0 (sources).
    """

    queries: Tensor
    keys: Tensor
    # they are sorted
    is_data_dependent = True

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(torch.tensor([0, 4, 2, 2, 2, 0]), torch.tensor([6, 0, 3, 1, 3, 2]))]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.queries.ndim != 1 or self.queries.shape != self.keys.shape:
            return (
                "Edges takes two index vectors of one length, got queries of shape"
                f" {tuple(self.queries.shape)} and keys of shape {tuple(self.keys.shape)}."
            )
        return misfit_integers(
            "Edges queries", self.queries, sizes.device, 0, sizes.n - 1, "the last query"
        ) or misfit_integers("Edges keys", self.keys, sizes.device, 0, sizes.m - 1, "the last key")

    @property
    def _codes(self) -> tuple[Tensor, int]:
        """Each edge as one number, sorted and unique, and the base of that number; kept until an edge is changed."""
        ends = self.queries, self.keys
        # tensors of inference mode do not count their changes: what was kept of them is not trusted
        versions = tuple(-1 if x.is_inference() else x._version for x in ends)
        codes = None if -1 in versions else self._kept.get(versions)
        if codes is None:
            base = int(self.keys.max()) + 1 if self.keys.numel() else 1
            codes = torch.unique(self.queries.long() * base + self.keys.long()), base
            self._kept.clear()
            self._kept[versions] = codes
        return codes

    @cached_property
    def _kept(self) -> dict[tuple[int, ...], tuple[Tensor, int]]:
        return {}

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        codes, base = self._codes
        i, j = torch.broadcast_tensors(torch.as_tensor(i), torch.as_tensor(j))
        if codes.numel() == 0:
            return torch.zeros_like(i, dtype=torch.bool)
        wanted = i * base + j
        at = torch.searchsorted(codes, wanted.contiguous()).clamp_(max=codes.numel() - 1)
        return (codes[at] == wanted) & (j < base)

    def _within(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """The edges of the tile's queries."""
        codes, base = self._codes
        ends = codes.new_tensor([tile.i.start * base, tile.i.stop * base])
        first, last = torch.searchsorted(codes, ends).tolist()
        return codes[first:last] // base, codes[first:last] % base

    def tile(self, tile: Tile) -> Tensor:
        allowed = torch.zeros(len(tile.i), len(tile.j), dtype=torch.bool, device=tile.device)
        i, j = self._within(tile)
        inside = (j >= tile.j.start) & (j < tile.j.stop)
        allowed[i[inside] - tile.i.start, j[inside] - tile.j.start] = True
        return allowed

    def span(self, tile: Tile) -> range:
        _, j = self._within(tile)
        if j.numel() == 0:
            return range(tile.j.start, tile.j.start)
        low, high = torch.aminmax(j)
        start = max(int(low), tile.j.start)
        return range(start, max(start, min(int(high) + 1, tile.j.stop)))
