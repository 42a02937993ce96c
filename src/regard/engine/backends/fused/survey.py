"""Launches of the kernels of a look, and memory for what they find.

The first pass finds each row's sums and a bar that its largest scores reach; the second has the weights, adds them up
for each key and each line of the map, and lists the keys that reach the bar. Sums are taken in a fixed order: the same
call gives the same bits. Rows whose list has no room for all that pass the bar are written out and sorted, some at a
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.engine.backends.fused.kernels.look import Found, survey_rows
from regard.engine.backends.fused.kernels.look_keys import Lists, Part, gather_keys, write_rows
from regard.engine.backends.fused.kernels.look_rank import list_keys, rank_keys
from regard.engine.backends.fused.kernels.look_sums import add_up_cells, add_up_keys
from regard.engine.backends.fused.kind import Kind
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.shapes import Shape, divide_up, round_up
from regard.engine.backends.fused.start import Spot, hand_over, start
from regard.engine.backends.fused.terms import as_rows, hold, make_terms

if TYPE_CHECKING:
    from regard.engine.looking.walk import Wanted

# bytes that the second pass may hold beside its results, and bytes of rows written out to be sorted
BUDGET, ROWS_BUDGET = 100 * 2**20, 32 * 2**20
# blocks of the two passes, as measured on an H200; a group of keys has as many members as a block of keys eights
SURVEY, GATHER = Shape(128, 64, 4, 3), Shape(64, 64, 4, 3)
# rows whose lists are made together, and rows in whose time the sums of a piece are written and read
LINES, PIECE = 8, 4


class Survey:
    """One look at work: the terms of the kernels, and room for what they find."""

    def __init__(self, kind: Kind, order: Order, wanted: Wanted) -> None:
        self.kind, self.order, self.wanted = kind, order, wanted
        spots = {name: Spot(at, x) for at, (name, x) in enumerate(hold(order).items())}
        given = as_rows(spots["query"]), as_rows(spots["key"]), make_terms(kind, spots)
        *self.rows, self.terms = hand_over(given, lambda spot: spot.held)
        self.b, self.h, self.n, _ = order.query.shape
        self.m = order.key.shape[2]
        self.line, self.wide = divide_up(self.n, wanted.map), divide_up(self.m, wanted.map)
        self.lines, self.columns = divide_up(self.n, self.line), divide_up(self.m, self.wide)
        self.across = self.columns * self.wide
        # products of float32 take four times the shared memory of their rows: 64 wide ones do not fit
        is_large = not self.kind.is_half and self.kind.constants["D"] > 128
        self.most = min(GATHER.rows, 16) if is_large else GATHER.rows
        self.tall = self.choose_tall()
        self.pieces = divide_up(self.line, self.tall)
        # few queries need no long block
        self.tile = min(self.most, max(16, round_up(self.lines * self.pieces * self.tall)))
        self.blocks = divide_up(self.lines * self.pieces * self.tall, self.tile)
        self.top = min(wanted.top, self.m)
        self.slots = 4 * max(16, round_up(self.top)) if self.top else 0
        self.room = self.slots * 3 // 4
        self.found = Found(*(self.make(self.b, self.h, self.n) for _ in Found._fields))

    def make(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.kind.device)

    def choose_tall(self) -> int:
        """Rows of a piece: long pieces are fewer, and short ones have fewer places without a row."""
        fit = [self.most >> k for k in range(self.most.bit_length()) if self.across * 4 << k <= BUDGET] or [self.most]
        return min(fit, key=lambda tall: divide_up(self.line, tall) * (tall + PIECE))

    @cached_property
    def constants(self) -> dict[str, Any]:
        recipe = self.kind.recipe
        folds = recipe.cap is None and recipe.bias is None and recipe.scale > 0
        names = "d", "UNIT", "D", "PRECISION", "FAST"
        return {**{name: self.kind.constants[name] for name in names}, "FOLD": folds}

    def start(self, kernel: Any, count: int, *given: Any, warps: int = 4, stages: int = 1, **constants: Any) -> None:
        options = {"num_warps": warps, "num_stages": stages if self.kind.is_half else 1}
        start(kernel, count, given, **constants, **options)

    def run(self, has_logsumexp: bool) -> dict[str, Tensor]:
        place = self.m - self.n
        tall = SURVEY.rows if self.tile == GATHER.rows and self.kind.is_half else self.tile
        self.start(
            survey_rows, self.kind.count * divide_up(self.n, tall), *self.rows, self.found, *self.terms,
            self.kind.size, place, **self.constants, TOP=self.top, ROWS=tall, KEYS=SURVEY.keys, warps=SURVEY.warps,
            stages=SURVEY.stages,
        )  # fmt: skip
        sums = self.gather(place)
        rows = self.write_chosen()
        of_rows = self.found._asdict()
        names = ["entropy", "peak", "total", "first", "local", "distance"]
        names += ["logsumexp"] if has_logsumexp else []
        return {**sums, "rows": rows, **{name: of_rows[name] for name in names}}

    def gather(self, place: int) -> dict[str, Tensor]:
        """The second pass, some blocks of rows at a time."""
        heads, top = self.kind.count, self.top
        top_weights, top_keys = self.make(heads, self.n, top), self.make(heads, self.n, top, dtype=torch.int64)
        again = self.make(heads, self.n, dtype=torch.int8)
        received = self.make(heads, self.m)
        cells = self.make(heads, self.lines, self.columns)
        score, _, mask, bias = self.terms
        kept = {name: self.constants[name] for name in ("d", "UNIT", "FOLD", "D")}
        across, each = self.across, self.tile // self.tall
        for head, num_heads, line, num_lines in self.cut():
            blocks = divide_up(num_lines * self.pieces, each)
            count, pieces, rows = num_heads * blocks, blocks * each, num_heads * blocks * self.tile
            part = Part(head, num_heads, line * self.pieces // each, blocks, self.pieces, self.line)
            given = torch.zeros(count * each, across, device=self.kind.device)
            lists = Lists(*(self.make(rows, size, dtype=torch.int32) for size in (self.slots, 2, self.slots, 1)))
            self.start(
                gather_keys, count, *self.rows, self.found, given, across, lists, part, score, mask, bias,
                self.kind.size, place, self.wanted.window, **self.constants, ROOM=self.room, SLOTS=self.slots,
                ROWS=self.tile, TALL=self.tall, KEYS=GATHER.keys, warps=GATHER.warps, stages=GATHER.stages,
            )  # fmt: skip
            if top:
                self.start(
                    list_keys, rows // LINES, lists, ROOM=self.room, SLOTS=self.slots, KEYS=GATHER.keys, LINES=LINES
                )
                self.start(
                    rank_keys, rows, *self.rows, self.found, lists, part, top_keys, top_weights, again, score, bias,
                    self.kind.size, **kept, TOP=top, SLOTS=self.slots, ROWS=self.tile, TALL=self.tall, warps=1,
                )  # fmt: skip
            self.start(
                add_up_keys, num_heads * divide_up(self.m, 128), given, across, received, part, pieces,
                self.m if line else 0, self.kind.size, LINES=32, KEYS=128,
            )  # fmt: skip
            span = min(round_up(self.wide), 1024)
            self.start(
                add_up_cells, num_heads * num_lines, given, across, cells, line, num_lines, self.lines, self.columns,
                self.wide, part, pieces, CELLS=min(4096 // span, round_up(self.columns)), SPAN=span,
            )  # fmt: skip
            del given, lists
        if top:
            self.sort_again(top_keys, top_weights, again)
        whole = self.b, self.h
        sums = {"top_keys": top_keys, "top_weights": top_weights, "received": received, "map": cells}
        return {name: x.unflatten(0, whole) for name, x in sums.items()}

    def cut(self) -> Iterator[tuple[int, int, int, int]]:
        """Whole heads, or lines of the map of one head, as the budget has room: first, how many, first, how many."""
        each, count = self.tile // self.tall, self.kind.count
        most = max(BUDGET // (each * self.across * 4 + self.tile * (self.slots + 2) * 8), 1)
        if most >= self.blocks:
            # equal parts, as far as that goes
            step = divide_up(count, divide_up(count, most // self.blocks))
            for head in range(0, count, step):
                yield head, min(step, count - head), 0, self.lines
            return
        # lines that fill their blocks
        whole = each // math.gcd(self.pieces, each)
        step = max(most * each // self.pieces // whole, 1) * whole
        for head in range(count):
            for line in range(0, self.lines, step):
                yield head, 1, line, min(step, self.lines - line)

    def write_chosen(self) -> Tensor:
        """The wanted queries in full."""
        count, device = len(self.wanted.rows), self.kind.device
        if not count:
            return self.make(self.b, self.h, 0, self.m)
        rows = self.make(self.kind.count, count, self.m)
        groups = divide_up(count, 16)
        chosen = torch.tensor([*self.wanted.rows, *[-1] * (groups * 16 - count)], dtype=torch.int32, device=device)
        step = max(ROWS_BUDGET // (groups * 16 * self.m * 4), 1)
        for head in range(0, self.kind.count, step):
            heads = torch.arange(head, min(head + step, self.kind.count), dtype=torch.int32, device=device)
            written = self.write(heads.repeat_interleave(groups), chosen.repeat(len(heads)))
            rows[head : head + step] = written.view(len(heads), -1, self.m)[:, :count]
        return rows.view(self.b, self.h, count, self.m)

    def write(self, heads: Tensor, chosen: Tensor) -> Tensor:
        """All weights of groups of 16 queries, each group of one head."""
        score, _, mask, bias = self.terms
        out = self.make(len(chosen), self.m)
        self.start(
            write_rows, len(heads) * divide_up(self.m, GATHER.keys), *self.rows, self.found, heads,
            chosen, out, score, mask, bias, self.kind.size, **self.constants, ROWS=16, KEYS=GATHER.keys,
        )  # fmt: skip
        return out

    def sort_again(self, top_keys: Tensor, top_weights: Tensor, again: Tensor) -> None:
        """Rows whose lists had no room, written out and sorted."""
        ill = again.nonzero()
        if not len(ill):
            return
        which, queries = ill.unbind(1)
        # each head's rows in groups of 16
        counts = torch.bincount(which, minlength=len(again))
        groups = (counts + 15) // 16
        start = (groups.cumsum(0) - groups) * 16
        spots = start[which] + torch.arange(len(ill), device=ill.device) - (counts.cumsum(0) - counts)[which]
        heads = torch.arange(len(again), device=ill.device).repeat_interleave(groups).to(torch.int32)
        chosen = torch.full((len(heads) * 16,), -1, dtype=torch.int32, device=ill.device)
        chosen[spots] = queries.to(torch.int32)
        step = max(ROWS_BUDGET // (self.m * 4 * 16), 1)
        for at in range(0, len(heads), step):
            mine, some = heads[at : at + step], chosen[at * 16 : (at + step) * 16]
            weights, keys = self.write(mine, some).topk(self.top, -1)
            nothing = weights == 0
            real = some >= 0
            where = mine.repeat_interleave(16)[real].long(), some[real].long()
            top_weights[where] = weights[real]
            top_keys[where] = keys.masked_fill(nothing, -1)[real]
