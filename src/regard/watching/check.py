"""The self-check of a look: some rows of weights, recomputed, against the layer's own output."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from regard.core import Term, Tile
from regard.engine.call import Call
from regard.engine.check import check
from regard.engine.fold import fold
from regard.engine.look import Look
from regard.watching.shown import SampledRows, compare, compare_sums

ROWS = 16
# kernels round in places of their own: what differs by more than this times eager's own error is something else
MOST = 8.0
# of rows that are compared at a time
NUMBERS = 2**20
T = TypeVar("T", bound=Term)


@dataclass(frozen=True)
class Check:
    """The result of a self-check: how far the output of some rows, recomputed in float64, is from the layer's.

    >>> Check(16, 2.6e-3, 2e-3, "bfloat16").text()
    "16 rows recomputed: within 1.3x of bfloat16's rounding"

    `error` is the largest difference, and `rounding` that of an eager computation in the layer's own dtype. `shown` is
    how far the look's own numbers lie from the same rows, in units of what they may, and `worst` which of them is the
    farthest. Where no row was recomputed, `why` says why.
    """

    rows: int = 0
    error: float = 0.0
    rounding: float = 0.0
    dtype: str = ""
    why: str = ""
    shown: float = 0.0
    worst: str = ""

    @property
    def ratio(self) -> float:
        """The error in units of rounding."""
        if self.error == 0:
            return 0.0
        return self.error / self.rounding if self.rounding > 0 else math.inf

    @property
    def is_done(self) -> bool:
        """Whether any row was recomputed."""
        return self.rows > 0

    @property
    def holds(self) -> bool:
        """False where the weights cannot be those that were used; True too where nothing was checked."""
        return not self.rows or (self.ratio <= MOST and self.shown <= 1.0)

    def text(self) -> str:
        """One line for a page or a table."""
        if not self.rows:
            return f"not checked: {self.why}" if self.why else "not checked"
        times = f"{self.ratio:.1f}x of {self.dtype}'s rounding" if self.ratio < 1e4 else f"by {self.error:.1e}"
        rows = f"{self.rows} row{'s' if self.rows > 1 else ''} recomputed"
        if self.ratio <= MOST and not self.holds:
            return f"{rows}: OFF, its look says something else ({self.worst})"
        return f"{rows}: within {times}" if self.holds else f"{rows}: OFF, {times}: these are not the weights used"


@dataclass(frozen=True)
class Rest:
    """What a layer does after attention, as by an output projection, to the heads (h, e) of sequence b and query i.

    `rows` are the queries that there are, numbered through the batch; None is all.
    """

    finish: Callable[[Tensor, int, int], Tensor]
    rows: Tensor | None = None


@torch.no_grad()
def check_rows(
    call: Call, query: Tensor, key: Tensor, value: Tensor, out: Tensor, look: Look | None = None, window: int = 8,
    rest: Rest | None = None,
) -> Check:  # fmt: skip
    """Check a call, whose terms are as they were given, and a look at it against `out`, the layer's output.

    `out` has query's axes, or with a `rest` (batch, queries, width).
    """
    if call.dropout:
        return Check(why="dropout was on, and weights are shown before it")
    sizes = check(query, key, value, call.score)
    if rest is None and tuple(out.shape) != (*sizes.pairs[:-1], sizes.e):
        return Check(why=f"the layer's output has another shape, {tuple(out.shape)}")
    if not out.numel() or not sizes.m:
        return Check(why="there is nothing in it")
    bias = None if call.bias is None else call.bias.settle(sizes)
    call = replace(call, sizes=sizes, weigh=call.weigh.settle(sizes), mask=call.mask.settle(sizes), bias=bias)
    rows = _Rows(call, *(fold(x.detach(), sizes) for x in (query, key, value)))
    out = out.detach() if rest is not None else fold(out.detach(), sizes)
    noise = torch.Generator().manual_seed(0)
    error = rounding = 0.0
    known = None if rest is None or rest.rows is None else rest.rows.tolist()
    places = torch.randperm(sizes.b * sizes.n if known is None else len(known), generator=noise)[:ROWS].tolist()
    places = places if known is None else [known[place] for place in places]
    heads = torch.randint(sizes.h, (len(places),), generator=noise).tolist()
    shown = {} if look is None else compare_sums(look)
    made: list[tuple[int, int, int, Tensor, Tensor]] = []
    with torch.autocast(sizes.device.type, enabled=False):
        for at, (place, head) in enumerate(zip(places, heads, strict=True)):
            b, i = place // sizes.n, place % sizes.n
            tile = rows.choose(b, head, i, rest is not None)
            (weights, exact), (rounded_weights, rounded) = rows.make(tile, torch.float64), rows.make(tile, out.dtype)
            if not bool(rounded.isfinite().all()) and bool(exact.isfinite().all()):
                # scores that this dtype does not have: kernels compute them in single precision
                rounded_weights, rounded = rows.make(tile, torch.float32)
            if rest is not None:
                exact, rounded = (rest.finish(x[0, :, 0], b, i) for x in (exact, rounded))
            error = max(error, _differ((rows.cut(out, tile) if rest is None else out[b, i]).double(), exact))
            off = _differ(rounded.double(), exact)
            rounding = max(rounding, off if math.isfinite(off) else 0.0, rows.round_off(exact, out.dtype))
            if look is None:
                continue
            own = 0, head - tile.h.start, 0
            made.append((b, head, i, weights[own], rounded_weights[own]))
            # many rows at a time, but not many numbers
            if len(made) * sizes.m >= NUMBERS or at + 1 == len(places):
                for name, off_by in compare(look, sizes, _gather(made), out.dtype, window, MOST).items():
                    shown[name] = torch.maximum(shown[name], off_by) if name in shown else off_by
                made.clear()
    far: dict[str, float] = (
        dict(zip(shown, torch.stack(list(shown.values())).tolist(), strict=True)) if shown else {"": 0.0}
    )
    worst = max(far, key=far.__getitem__)
    dtype = str(out.dtype).removeprefix("torch.")
    return Check(len(places), error, rounding, dtype, "", far[worst], worst if far[worst] > 1.0 else "")


def _gather(made: list[tuple[int, int, int, Tensor, Tensor]]) -> SampledRows:
    device = made[0][3].device
    b, h, i = torch.tensor([row[:3] for row in made], device=device).unbind(-1)
    return SampledRows(b, h, i, torch.stack([row[3] for row in made]), torch.stack([row[4] for row in made]))


class _Rows:
    """Single rows of a settled call, by the definitions of its terms."""

    def __init__(self, call: Call, query: Tensor, key: Tensor, value: Tensor) -> None:
        self.call, self.query, self.key, self.value = call, query, key, value

    def choose(self, b: int, h: int, i: int, whole: bool = False) -> Tile:
        s = self.call.sizes
        # learned tensors, and functions, may tell heads apart: they get all of them
        plain = not whole and not self.call.score.tensors and not self.call.score.keeps_dtype
        heads = range(h, h + 1) if plain else range(s.h)
        return Tile(range(b, b + 1), heads, range(i, i + 1), range(s.m), s.device)

    def cut(self, rows: Tensor, tile: Tile) -> Tensor:
        """The tile's queries of (b, h, n, …)."""
        return rows[tile.b.start : tile.b.stop, tile.h.start : tile.h.stop, tile.i.start : tile.i.stop]

    def make(self, tile: Tile, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The row's weights and weighted values, computed in this dtype."""
        call, s = self.call, self.call.sizes
        served = max(s.h // max(s.g, 1), 1)
        groups = torch.tensor([h // served for h in tile.h], device=s.device)
        query = self.cut(self.query, tile)
        key, value = (x[tile.b.start : tile.b.stop].index_select(1, groups) for x in (self.key, self.value))
        if not call.score.keeps_dtype:
            query, key = query.to(dtype), key.to(dtype)
        scores = _cast(call.score, dtype)(query, key).to(dtype)
        if call.bias is not None:
            # what float32 calls its lowest number must not become infinite
            added = call.bias.tile(tile).double().clamp(min=torch.finfo(dtype).min)
            scores = scores + added.to(dtype)
        allowed = call.allowed(tile)
        weights = _cast(call.weigh, dtype)(scores, None if allowed is None else allowed.expand(scores.shape), tile)
        weights = weights.to(dtype)
        # NaN in a value that has no weight is never read
        return weights, weights @ value.to(dtype).masked_fill(weights.transpose(-1, -2) == 0, 0.0)

    def round_off(self, exact: Tensor, dtype: torch.dtype) -> float:
        """The least that any computation in this dtype may be off by."""
        # of float64 there is no better one to compare with: sums in another order
        times = 4 + math.log2(self.call.sizes.m) if dtype == torch.float64 else 1.0
        size = float(exact.abs().amax())
        return torch.finfo(dtype).eps * size * times if math.isfinite(size) else 0.0


def _differ(a: Tensor, b: Tensor) -> float:
    # what is not finite in both, in the same way, does not differ
    same = (a == b) | (a.isnan() & b.isnan())
    worst = float((a - b).abs().masked_fill(same, 0.0).amax())
    return math.inf if math.isnan(worst) else worst


def _cast(term: T, dtype: torch.dtype) -> T:
    tensors = term.tensors
    return term.with_tensors([x.detach().to(dtype) for x in tensors]) if tensors else term
