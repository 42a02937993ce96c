"""The estimated cost of a walk over tiles, from its layout."""

from __future__ import annotations

from regard.core import Pair, Row
from regard.engine.call import Call, Cost
from regard.engine.tiles.layout import lay_out

# arrays of a tile's size alive at once; tests hold the estimate to the measured peak
_FORWARD, _BACKWARD, _ROW = 3, 6, 9


def estimate_tiles(call: Call, budget: int) -> Cost:
    """Operations on the pairs that spans leave; memory for tiles, copies in the compute dtype, accumulators."""
    s, size = call.sizes, call.compute_dtype.itemsize
    rows_at_once, pair = isinstance(call.weigh, Row), Pair()
    if call.score.keeps_dtype:
        # a function of the user's gets smaller tiles, and fills them up
        pair.footprint, pair.keeps_heads = max(s.d, 1), True
    layout = lay_out(s, call.mask, pair, rows_at_once, budget)
    pairs = sum(len(t.b) * len(t.h) * len(t.i) * len(t.j) for t in layout.rows(s, call.mask))
    tile = layout.sequences * layout.heads * layout.queries * (s.m if layout.keys is None else layout.keys)
    held = tile * (_ROW if rows_at_once else _BACKWARD if call.needs_grad else _FORWARD)
    if not call.score.is_dot:
        # a block of features, as large as a tile of scores
        held += budget
    rows = s.b * s.h * (s.n * s.d + s.m * (s.c + s.e))
    if s.dtype != call.compute_dtype or s.g != s.h:
        held += rows
    if call.needs_grad:
        held += rows
    ends = s.b * (s.h * s.n * (s.d + s.e) + s.g * s.m * (s.c + s.e))
    passes = 3.5 if call.needs_grad else 1.0
    return Cost(2.0 * pairs * (s.d + s.e) * passes, ends * s.dtype.itemsize, held * size)
