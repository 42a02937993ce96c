"""The walk over blocks of whole rows: each block of weights is made, measured and dropped."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from regard.core import Tile
from regard.engine.call import Call
from regard.engine.tiles.layout import lay_out
from regard.engine.tiles.steps import EAGER, score
from regard.engine.tiles.work import Work, cut_keys, cut_queries

# numbers of a block of weights; about eight such blocks are held at a time
BUDGET = {"cpu": 2**20, "cuda": 2**22}


@dataclass(frozen=True)
class Wanted:
    """What a look is asked for: top keys of a row, rows in full, cells of the map, width of the window."""

    top: int
    rows: tuple[int, ...]
    map: int
    window: int


def walk(call: Call, query: Tensor, key: Tensor, wanted: Wanted, has_logsumexp: bool = False) -> dict[str, Tensor]:
    """All statistics of a lifted call, shaped (b, h, …); with `has_logsumexp` that of each row's scores, too."""
    sizes = call.sizes
    query, key, pair = call.score.prepare(query, key)
    budget = BUDGET.get(sizes.device.type, BUDGET["cuda"])
    work = Work(call, pair, EAGER, budget, pair.tensors)
    layout = lay_out(sizes, call.mask, pair, True, budget)
    tally = Tally(call, wanted, has_logsumexp)
    for row in layout.rows(sizes, call.mask):
        allowed = call.allowed(row)
        if allowed is not None:
            allowed = allowed.expand(row.shape)
        bias = None if call.bias is None else call.bias.tile(row)
        rows = cut_queries(query, row), cut_keys(key, row)
        scores = score(pair, *rows, work.of_heads(row), bias, call.compute_dtype)
        tally.add(row, scores, call.weigh(scores, allowed, row), allowed)
    return tally.finish()


class Tally:
    """The statistics of all rows and keys, gathered tile by tile."""

    def __init__(self, call: Call, wanted: Wanted, has_logsumexp: bool) -> None:
        s, self.wanted, self.dtype = call.sizes, wanted, call.compute_dtype
        self.n, self.m = s.n, s.m
        self.has_signs = call.weigh.has_signs
        self.tall, self.wide = (max(-(-size // wanted.map), 1) for size in (s.n, s.m))
        top = min(wanted.top, s.m)

        def blank(*shape: int, dtype: torch.dtype = self.dtype) -> Tensor:
            return torch.zeros(s.b, s.h, *shape, dtype=dtype, device=s.device)

        self.top_weights = blank(s.n, top)
        self.top_keys = blank(s.n, top, dtype=torch.int64).fill_(-1)
        self.of_rows = {name: blank(s.n) for name in ("entropy", "peak", "total", "first", "local", "distance")}
        if has_logsumexp:
            # a row with no key has weights of exp(score − ∞)
            self.of_rows["logsumexp"] = blank(s.n).fill_(torch.inf)
        # sums over very many rows
        self.received = blank(s.m, dtype=torch.float64)
        self.map = blank(-(-s.n // self.tall), -(-s.m // self.wide), dtype=torch.float64)
        self.rows = blank(len(wanted.rows), s.m)

    def add(self, tile: Tile, scores: Tensor, weights: Tensor, allowed: Tensor | None) -> None:
        """Add the statistics of whole rows; keys outside the tile have no weight."""
        own = {name: cut_queries(x, tile) for name, x in self.of_rows.items()}
        peak, at = self._rank(tile, weights, allowed)
        own["peak"].copy_(peak.clamp_min(0.0))
        if "logsumexp" in own:
            # the largest weight is e^(score − logsumexp) as any other is
            best = scores.gather(-1, at[..., None])[..., 0]
            own["logsumexp"].copy_(torch.where(peak > 0, best - peak.log(), torch.inf))
        if tile.j.start == 0:
            own["first"].copy_(weights[..., 0])
        self._neighbour(tile, weights, own["local"])
        total = weights.sum(-1)
        own["total"].copy_(total)
        cut_keys(self.received, tile).add_(weights.sum(-2))
        self._bin(tile, weights)
        for place, row in enumerate(self.wanted.rows):
            if row in tile.i:
                b, h = slice(tile.b.start, tile.b.stop), slice(tile.h.start, tile.h.stop)
                self.rows[b, h, place, tile.j.start : tile.j.stop] = weights[:, :, row - tile.i.start]
        # the last that needs the weights may change them
        if self.has_signs:
            total = weights.abs_().sum(-1)
        total = torch.where(total == 0, 1.0, total)
        shares = weights.div_(total[..., None])
        way = self._measure_ways(tile, tile.j)
        own["distance"].copy_(torch.linalg.vecdot(shares, way))
        own["entropy"].copy_(torch.special.entr(shares).sum(-1))

    def _measure_ways(self, tile: Tile, keys: range) -> Tensor:
        """How far each query of the tile is from each of some keys."""
        # as numbers from the start: to turn so many integers into them takes longer than all the rest
        i, j = (torch.arange(r.start, r.stop, device=tile.device, dtype=self.dtype) for r in (tile.i, keys))
        return torch.sub(i[:, None] + (self.m - self.n), j).abs_()

    def _neighbour(self, tile: Tile, weights: Tensor, local: Tensor) -> None:
        """The weight within the window, of which only the band of keys around the tile's queries can have any."""
        window, ahead = self.wanted.window, self.m - self.n
        start = max(tile.i.start + ahead - window, tile.j.start)
        stop = min(tile.i.stop + ahead + window, tile.j.stop)
        if start < stop:
            near = self._measure_ways(tile, range(start, stop)) <= window
            band = weights[..., start - tile.j.start : stop - tile.j.start]
            local.copy_(torch.where(near, band, 0.0).sum(-1))

    def _rank(self, tile: Tile, weights: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
        """Note the best keys; the largest weight of each row and where it lies in the tile."""
        count = min(self.top_keys.shape[-1], len(tile.j))
        hidden = weights
        if allowed is not None and self.has_signs:
            # zero, of those not allowed, is not the least
            hidden = weights.masked_fill(~allowed, -torch.inf)
        best, at = hidden.topk(max(count, 1), -1)
        peak, first = best[..., 0], at[..., 0]
        nothing = (best == 0) | (best == -torch.inf)
        cut_queries(self.top_keys, tile)[..., :count] = (at + tile.j.start).masked_fill(nothing, -1)[..., :count]
        cut_queries(self.top_weights, tile)[..., :count] = best.masked_fill(nothing, 0.0)[..., :count]
        return peak, first

    def _bin(self, tile: Tile, weights: Tensor) -> None:
        """Add the sums of blocks of keys, then of the queries that share a line of the map."""
        before, after = tile.j.start % self.wide, -tile.j.stop % self.wide
        cells = functional.pad(weights, (before, after)) if before or after else weights
        cells = cells.unflatten(-1, (-1, self.wide)).sum(-1).double()
        lines = torch.arange(tile.i.start, tile.i.stop, device=tile.device) // self.tall
        start = tile.j.start // self.wide
        part = self.map[tile.b.start : tile.b.stop, tile.h.start : tile.h.stop, :, start : start + cells.shape[-1]]
        part.index_add_(-2, lines, cells)

    def finish(self) -> dict[str, Tensor]:
        sums = {"received": self.received.to(self.dtype), "map": self.map.to(self.dtype)}
        return {"top_keys": self.top_keys, "top_weights": self.top_weights, "rows": self.rows} | self.of_rows | sums
