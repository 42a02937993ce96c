"""A look at the weights of a softmax of dot products by two passes of kernels, never n×m numbers.

`refuse` names what has no kernel; the walk over whole rows takes it. Triton is imported when the first look runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.engine.backends import fused
from regard.engine.backends.fused.masks import take_apart
from regard.engine.backends.fused.read import read
from regard.engine.call import Call
from regard.score import Dot
from regard.weigh import Softmax

if TYPE_CHECKING:
    from regard.engine.backends.fused.survey import Survey
    from regard.engine.looking.walk import Wanted

# a bar for the largest scores comes from a tile's columns, of which half may be above it
TOP = 32
# wider blocks do not fit into the shared memory of a Hopper
WIDEST = 256
# the number of a group of keys and its members fill 32 bits
MOST = 2**26


def refuse(call: Call, wanted: Wanted) -> str | None:
    """Why there is no kernel for this look, or None."""
    s = call.sizes
    # a look has no values, and `attend` some
    filled = replace(call, sizes=replace(s, e=1))
    why = fused.refuse(filled) or (fused.decline(filled) if s.device.type == "cuda" else None)
    if why is not None:
        return why
    if not (call.score.is_dot or type(call.score) is Dot):
        return f"{type(call.score).__name__} is not a dot product."
    if type(call.weigh) is not Softmax:
        return f"{type(call.weigh).__name__} is not softmax."
    if s.d > WIDEST:
        return f"its kernels look at widths up to {WIDEST}, got {s.d}."
    if min(wanted.top, s.m) > TOP:
        return f"its kernels name up to {TOP} keys for a query, not {wanted.top}."
    if s.m >= MOST:
        return f"its kernels list fewer than 2**26 keys, got {s.m}."
    return None


@torch.no_grad()
def run(call: Call, query: Tensor, key: Tensor, wanted: Wanted, has_logsumexp: bool = False) -> dict[str, Tensor]:
    """All statistics, shaped (b, h, …), of a call that `refuse` lets through; rows as folded, in the caller's dtype.

    With `has_logsumexp` also that of each row's scores, the sink's with it; infinity for a query without keys.
    """
    return prepare(call, query, key, wanted).run(has_logsumexp)


def prepare(call: Call, query: Tensor, key: Tensor, wanted: Wanted) -> Survey:
    """A look that has not begun."""
    from regard.engine.backends.fused.kind import find_kind
    from regard.engine.backends.fused.survey import Survey

    order = read(call, query, key, key)
    order = order._replace(value=order.key)
    return Survey(find_kind(order), order, wanted)


def find_spans(call: Call) -> Tensor | None:
    """[start, stop) of each query's keys as (1 or b, 1, n, 2) int32, or None where the mask is no known interval."""
    s, marks = call.sizes, take_apart(call.mask)
    if marks.grid is not None or marks.document is not None or marks.rest:
        return None
    tensors = marks.list_tensors(s)
    i = torch.arange(s.n, device=s.device).view(1, s.n)
    start, stop = torch.zeros_like(i), torch.full_like(i, s.m)
    if "places" in tensors:
        i = i + tensors["places"].view(-1, 1)
    if marks.after is not None:
        stop = torch.minimum(stop, i + marks.after + 1)
    if marks.before is not None:
        start = torch.maximum(start, i - marks.before)
    for name in ("lengths", "row_lengths"):
        if name in tensors:
            stop = torch.minimum(stop, tensors[name])
    start, stop = torch.broadcast_tensors(start, stop)
    empty = stop <= start
    spans = torch.stack([start.masked_fill(empty, 0), stop.masked_fill(empty, 0)], -1)
    return spans[:, None].to(torch.int32)
