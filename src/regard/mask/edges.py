"""A mask of graph edges: a query attends to its neighbours alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from regard.core import Mask, Sizes, Tile
from regard.mask.integer import misfit_integers

# from so many edges on, neighbourhoods are grouped by finer sizes
MANY = 2**17


class Neighbourhoods(NamedTuple):
    """Queries (r,), their keys (r, w) in order, and which of those are there: more than half of them."""

    rows: Tensor
    keys: Tensor
    is_there: Tensor


class Sorted:
    """Edges in the order of their queries, and of their keys within them, each once."""

    def __init__(self, queries: Tensor, keys: Tensor) -> None:
        # each edge as one number of this base
        self.base: int = int(keys.max()) + 1 if keys.numel() else 1
        self.codes: Tensor = torch.unique(queries.long() * self.base + keys.long())
        self.made: dict[Any, Any] = {}

    @cached_property
    def neighbourhoods(self) -> list[Neighbourhoods]:
        """All of them by their sizes; one without queries where there is no edge."""
        keys = self.codes % self.base
        rows, counts = torch.unique_consecutive(self.codes // self.base, return_counts=True)
        starts = counts.cumsum(0) - counts
        # up to the next power of two, or a quarter of the way to it: a group takes time, and what fills it memory
        finer = 2 if len(keys) >= MANY else 0
        steps = 2 ** (counts.double().log2().floor().long() - finer).clamp(min=0)
        widths = -(counts // -steps) * steps
        found = []
        for width in widths.unique().tolist() or [1]:
            own = widths == width
            places = torch.arange(width, device=keys.device)
            is_there = places < counts[own, None]
            at = torch.where(is_there, starts[own, None] + places, starts[own, None])
            found.append(Neighbourhoods(rows[own], keys[at], is_there))
        return found


@dataclass(frozen=True, repr=False, eq=False)
class Edges(Mask):
    """Graph mask: edge t lets query `queries[t]` attend to key `keys[t]`, in every sequence and head.

    >>> Edges(torch.tensor([0, 0]), torch.tensor([1, 2]))(0, 0, torch.tensor([[0], [1]]), torch.arange(3))
    tensor([[False,  True,  True],
            [False, False, False]])

    An edge given twice counts once. For PyG's `edge_index`, queries are row 1 (targets), keys row 0 (sources).

    Where edges are few, `attend` goes along them alone (`backend="edges"`). What it sorts for that is kept with the
    mask until an edge is changed: give one mask to all layers and steps.
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
    def _sorted(self) -> Sorted:
        """The edges in order, kept until one is changed."""
        ends = self.queries, self.keys
        # tensors of inference mode do not count their changes: what was kept of them is not trusted
        versions = tuple(-1 if x.is_inference() else x._version for x in ends)
        found = None if -1 in versions else self._kept.get(versions)
        if found is None:
            # what is kept serves calls with gradients, too
            with torch.inference_mode(False):
                found = Sorted(*ends)
            self._kept.clear()
            self._kept[versions] = found
        return found

    @cached_property
    def _kept(self) -> dict[tuple[int, ...], Sorted]:
        return {}

    @property
    def count(self) -> int:
        """How many edges there are, each counted once."""
        return len(self._sorted.codes)

    @property
    def neighbourhoods(self) -> list[Neighbourhoods]:
        """The keys of every query that has any, queries of about as many together."""
        return self._sorted.neighbourhoods

    @property
    def made(self) -> dict[Any, Any]:
        """What an engine made of the edges: it is theirs as long as none is changed."""
        return self._sorted.made

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        codes, base = self._sorted.codes, self._sorted.base
        i, j = torch.broadcast_tensors(torch.as_tensor(i), torch.as_tensor(j))
        if codes.numel() == 0:
            return torch.zeros_like(i, dtype=torch.bool)
        wanted = i * base + j
        at = torch.searchsorted(codes, wanted.contiguous()).clamp_(max=codes.numel() - 1)
        return (codes[at] == wanted) & (j < base)

    def _within(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """The edges of the tile's queries."""
        codes, base = self._sorted.codes, self._sorted.base
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
