"""Triton kernels: any score, weigher and mask that has a fragment, forward and backward, without n×m memory.

`refuse` names what has none; `tiled` takes it. Triton is imported when the first call runs.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from torch import Tensor

from regard.engine.backends.fused.refuse import count_mask, refuse_terms
from regard.engine.call import Call, Cost, show_bytes
from regard.engine.double_backward import Again, differentiate_by
from regard.weigh import Hard

# rows come as the caller gave them, NaN under a mask is dealt with in the kernels, and those are operators of torch
LIFTS, HANDLES_NAN, TWICE_DIFFERENTIABLE, AUTOCASTS, TRACEABLE = False, True, False, False, True
errs = None
# a mask without a fragment is packed into bits; beyond this, tiles need less
BITS_LIMIT = 64 * 2**20
# looked for, not imported
HAS_TRITON = find_spec("triton") is not None


def _is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def refuse(call: Call) -> str | None:
    device = call.sizes.device
    if device.type != "cuda" and not (device.type == "cpu" and _is_interpreted()):
        return f"its kernels run on CUDA devices, not on {device.type}."
    if not HAS_TRITON:
        return "it needs the package triton."
    return refuse_terms(call)


def decline(call: Call) -> str | None:
    if call.sizes.device.type == "cpu":
        return "Triton's interpreter is for tests."
    held = count_mask(call)
    if held > BITS_LIMIT:
        return f"the mask has no kernel of its own, and its bits would take {show_bytes(held)}."
    return None


def estimate(call: Call) -> Cost:
    s = call.sizes
    pairs = s.b * s.h * s.n * s.m
    size = s.dtype.itemsize
    ends = s.b * (s.h * s.n * (s.d + s.e) + s.g * s.m * (s.c + s.e))
    held = float(count_mask(call))
    if not call.score.is_dot:
        # features in float32, and their gradients
        held += s.b * (s.h * s.n + s.g * s.m) * s.d * 4 * (2 if call.needs_grad else 1)
    if call.needs_grad:
        held += s.b * s.h * s.n * 12
    passes = 4.5 if call.needs_grad else 1.0
    return Cost(2.0 * pairs * (s.d + s.e) * passes, ends * size, held)


def run(call: Call, query: Tensor, key: Tensor, value: Tensor, again: Again | None = None) -> Tensor:
    from regard.engine.backends.fused.ops import attend_fused
    from regard.engine.backends.fused.read import keeps_rows

    drawn = call.weigh.seed if isinstance(call.weigh, Hard) else None
    out = attend_fused(call, query, key, value, (call.seed, 0 if drawn is None else drawn), again)
    out = out.to(call.sizes.dtype)
    if again is None or keeps_rows(call):
        return out
    return differentiate_by(again, out, (query, key, value, *call.tensors), call.constants)
