"""A mask for several documents packed into one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from regard.core import Mask, Sizes, Tile
from regard.mask.integer import misfit_integers


@dataclass(frozen=True, repr=False, eq=False)
class Document(Mask):
    """A query sees the keys of its own segment: `segments` holds each key's segment number, `(j,)` or `(b, j)`.

    >>> Document(torch.tensor([0, 0, 1]))(0, 0, 2, torch.arange(3))
    tensor([False, False,  True])

    Queries are the keys' own positions; where they are not, `query_segments` holds theirs.
    """

    segments: Tensor
    query_segments: Tensor | None = None

    @classmethod
    def samples(cls) -> Sequence[Self]:
        keys = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [3, 1, 1, 0, 0, 3, 3]])
        return [cls(keys, torch.tensor([0, 1, 1, 5, 2]))]

    @property
    def _queries(self) -> Tensor:
        return self.segments if self.query_segments is None else self.query_segments

    def misfit(self, sizes: Sizes) -> str | None:
        for name, ids, count in (("segments", self.segments, sizes.m), ("query_segments", self._queries, sizes.n)):
            if tuple(ids.shape) not in ((count,), (sizes.b, count), (*sizes.lead, count)):
                hint = " Give query_segments where queries are not the keys." if self.query_segments is None else ""
                return (
                    f"Document {name} must be ({count},) or (b, {count})=({sizes.b}, {count}),"
                    f" got shape {tuple(ids.shape)}.{hint}"
                )
            if problem := misfit_integers(f"Document {name}", ids, sizes.device, None, None):
                return problem
        return None

    def settle(self, sizes: Sizes) -> Self:
        keys = self.segments.reshape(1 if self.segments.ndim == 1 else sizes.b, sizes.m)
        queries = self._queries
        queries = queries.reshape(1 if queries.ndim == 1 else sizes.b, sizes.n)
        return replace(self, segments=keys, query_segments=queries)

    def _pick(self, ids: Tensor, b: Tensor, at: Tensor) -> Tensor:
        if ids.ndim == 1:
            return ids[at]
        return ids[b if ids.shape[0] != 1 else 0, at]

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self._pick(self._queries, b, i) == self._pick(self.segments, b, j)

    @cached_property
    def _reach(self) -> tuple[Tensor, Tensor]:
        """The first and one past the last key of each query's segment, over all sequences."""
        keys, queries = (x if x.ndim == 2 else x[None] for x in (self.segments, self._queries))
        if keys.numel() == 0 or queries.numel() == 0:
            none = keys.new_zeros(queries.shape[1])
            return none, none
        start, stop = find_reach(keys, queries)
        return start.amin(0), stop.amax(0)

    def span(self, tile: Tile) -> range:
        start, stop = (x[tile.i.start : tile.i.stop] for x in self._reach)
        if not start.numel():
            return range(tile.j.start, tile.j.start)
        low = max(int(start.min()), tile.j.start)
        return range(low, max(low, min(int(stop.max()), tile.j.stop)))


def find_reach(ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The first index, and one past the last, of each wanted number in its row of `ids`.

    >>> find_reach(torch.tensor([[0, 0, 1]]), torch.tensor([[1, 0, 5]]))
    (tensor([[2, 0, 3]]), tensor([[3, 2, 0]]))

    Rows are sequences; one row serves all of the other.
    """
    b = max(ids.shape[0], wanted.shape[0])
    ids, wanted = ids.expand(b, -1), wanted.expand(b, -1).contiguous()
    # a stable sort puts each number's places together, in order
    ranked, order = torch.sort(ids, dim=-1, stable=True)
    first = torch.searchsorted(ranked, wanted)
    last = torch.searchsorted(ranked, wanted, right=True)
    m = ids.shape[1]
    some = last > first
    start = torch.where(some, order.gather(1, first.clamp(max=m - 1)), m)
    stop = torch.where(some, order.gather(1, (last - 1).clamp(min=0)) + 1, 0)
    return start, stop
