"""What a walk over tiles costs, estimated from its layout."""

from __future__ import annotations

from regard.core import Pair, Row
from regard.engine.call import Call, Cost
from regard.engine.tiles.layout import lay_out


def estimate_tiles(call: Call, budget: int) -> Cost:
    """Operations over the pairs that the mask's spans leave; memory of one tile and, for backward, the accumulators."""
    s = call.sizes
    pair = Pair()
    pair.footprint = 1 if call.score.is_dot else max(s.d, 1)
    layout = lay_out(s, call.mask, pair, isinstance(call.weigh, Row), budget)
    pairs = sum(len(t.b) * len(t.h) * len(t.i) * len(t.j) for t in layout.rows(s, call.mask))
    size = call.compute_dtype.itemsize
    ends = s.b * (s.h * s.n * (s.d + s.e) + s.g * s.m * (s.c + s.e))
    tile = layout.sequences * layout.heads * layout.queries * (s.m if layout.keys is None else layout.keys)
    # scores, weights and what the mask and bias of a tile need
    held = tile * (pair.footprint + 3)
    if call.needs_grad:
        held += tile * 2 + s.b * s.h * (s.n * s.d + s.m * (s.c + s.e))
    passes = 3.5 if call.needs_grad else 1.0
    return Cost(2.0 * pairs * (s.d + s.e) * passes, ends * s.dtype.itemsize, held * size)
