"""How a call is cut into tiles whose working set stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from regard.core import Mask, Pair, Sizes, Tile

# numbers that a tile may hold at a time; measured on CPUs with 1 MiB of L2 a core (docs/design/2026-11-15-tiles.md)
BUDGET = 2**18


@dataclass(frozen=True)
class Layout:
    """The sizes of a tile along sequences, heads, queries and keys; `keys` None takes whole rows."""

    sequences: int
    heads: int
    queries: int
    keys: int | None

    def rows(self, sizes: Sizes, mask: Mask) -> Iterator[Tile]:
        """Blocks of queries, each with the span of keys that it may meet; blocks that meet none are left out."""
        for b in _blocks(sizes.b, self.sequences):
            for h in _blocks(sizes.h, self.heads):
                for i in _blocks(sizes.n, self.queries):
                    tile = Tile(b, h, i, range(sizes.m), sizes.device)
                    span = mask.span(tile)
                    if span:
                        yield tile.keys(span)

    def tiles(self, row: Tile) -> Iterator[Tile]:
        """One block of queries, cut along its keys."""
        step = len(row.j) if self.keys is None else self.keys
        for start in range(row.j.start, row.j.stop, step):
            yield row.keys(range(start, min(start + step, row.j.stop)))


def lay_out(sizes: Sizes, mask: Mask, pair: Pair, whole_rows: bool, budget: int) -> Layout:
    """The largest tiles that fit: keys first, then queries, then heads, then sequences."""
    pairs = max(budget // pair.footprint, 1)
    keys, queries = max(min(256, pairs), 2 * _power(isqrt(pairs))), sizes.n
    if sizes.n and sizes.m:
        # under a narrow band, a block of queries as tall as the band is wide would look at twice the keys it needs
        middle = range(sizes.n // 2, sizes.n // 2 + 1)
        band = len(mask.span(Tile(range(sizes.b), range(sizes.h), middle, range(sizes.m), sizes.device)))
        if 4 * band <= sizes.m:
            queries = max(32, band // 2)
            keys = min(keys, band + queries)
    keys = max(1, sizes.m if whole_rows else _even(sizes.m, keys))
    queries = _even(sizes.n, _fit(min(sizes.n, queries), pairs // keys))
    heads = max(sizes.h, 1) if pair.keeps_heads else _fit(sizes.h, pairs // (queries * keys))
    sequences = _fit(sizes.b, pairs // (queries * keys * max(heads, 1))) if heads == sizes.h else 1
    return Layout(sequences, heads, queries, None if whole_rows else keys)


def _power(count: int) -> int:
    """The largest power of two that is no larger."""
    return 1 << max(count, 1).bit_length() - 1


def _even(size: int, step: int) -> int:
    """The step, made smaller so that the last block is not a sliver: fewer shapes, and no idle tile."""
    blocks = max(-(-size // max(step, 1)), 1)
    return max(-(-size // blocks), 1)


def _fit(size: int, room: int) -> int:
    return max(1, min(size, room))


def _blocks(size: int, step: int) -> Iterator[range]:
    for start in range(0, size, step):
        yield range(start, min(start + step, size))
