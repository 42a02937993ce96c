"""Every combination of terms in O(n) memory: tiles of scores, used and dropped, and recomputed in backward."""

from __future__ import annotations

from torch import Tensor

from regard.engine.call import Call, Cost
from regard.engine.double_backward import Again
from regard.engine.tiles import layout
from regard.engine.tiles.cost import estimate_tiles
from regard.engine.tiles.function import attend_by_tiles
from regard.engine.tiles.steps import EAGER
from regard.engine.tiles.work import Work

# rows in the compute dtype, a key head for each query head; NaN under a mask is `attend`'s to remove
LIFTS, HANDLES_NAN, TWICE_DIFFERENTIABLE, AUTOCASTS, TRACEABLE = True, False, True, True, False
errs = None


def refuse(call: Call) -> str | None:
    """It takes everything."""
    return None


def decline(call: Call) -> str | None:
    return None


def estimate(call: Call) -> Cost:
    return estimate_tiles(call, layout.BUDGET)


def run(call: Call, query: Tensor, key: Tensor, value: Tensor, _: Again | None = None) -> Tensor:
    query, key, pair = call.score.prepare(query, key)
    return attend_by_tiles(Work(call, pair, EAGER, layout.BUDGET, pair.tensors), query, key, value)
