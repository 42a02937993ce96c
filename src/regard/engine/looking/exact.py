"""Query and key of a softmax of dot products, from which any weight can be recomputed."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.core import Tile
from regard.engine.backends.fused import look as fused
from regard.engine.call import Call
from regard.engine.fold import lift
from regard.weigh import Softmax

# pairs looked at together
PAIRS = 2**21
_NO_DOT = "not kept: {} is not a dot product"


def keep_rows(call: Call, query: Tensor, key: Tensor) -> dict[str, Tensor | str]:
    """`query`, `key` and `spans` of a call, or `why` not; the key has heads of its own, not the query's."""
    why = refuse(call)
    if why is not None:
        return {"why": why}
    spans = find_spans(call)
    if spans is None:
        return {"why": f"not kept: some queries of {call.mask} may see keys that are not one interval"}
    lifted, query, _, _ = lift(call, query, key[..., :0, :], key[..., :0, :])
    rows = lifted.score.as_dot(query, key.to(query.dtype))
    if rows is None:
        return {"why": _NO_DOT.format(type(call.score).__name__)}
    query, key, scale = rows
    return {"query": query * scale, "key": key, "spans": spans, "why": ""}


def refuse(call: Call) -> str | None:
    """Why the weights cannot be recomputed from query and key alone, or None."""
    if not call.score.is_dot:
        return _NO_DOT.format(type(call.score).__name__)
    if type(call.weigh) is not Softmax:
        return f"not kept: {type(call.weigh).__name__} is not softmax"
    if call.bias is not None:
        return f"not kept: {type(call.bias).__name__} adds to the scores"
    return None


def find_spans(call: Call) -> Tensor | None:
    """[start, stop) of each row's allowed keys as (b, h, n, 2), or None where some are not one interval."""
    s = call.sizes
    whole = s.whole()
    known = fused.find_spans(call)
    if known is not None:
        return known.expand(s.b, s.h, s.n, 2)
    spans = torch.zeros(s.b, s.h, s.n, 2, dtype=torch.int32, device=s.device)
    if call.mask.covers(whole):
        spans[..., 1] = s.m
        return spans
    step = max(PAIRS // max(s.b * s.h * s.m, 1), 1)
    for start in range(0, s.n, step):
        i = range(start, min(start + step, s.n))
        tile = Tile(whole.b, whole.h, i, whole.j, s.device)
        j = call.mask.span(tile)
        if not j:
            continue
        allowed = call.mask.tile(tile.keys(j)).expand(s.b, s.h, len(i), len(j)).to(torch.uint8)
        count = allowed.sum(-1, dtype=torch.int32)
        # argmax of equals is the first on no device for certain: the first and last come from sums
        begun = allowed.cummax(-1).values.sum(-1, dtype=torch.int32)
        first = len(j) - begun
        ended = allowed.flip(-1).cummax(-1).values.sum(-1, dtype=torch.int32)
        if not bool(((ended - first == count) | (count == 0)).all()):
            return None
        part = spans[:, :, i.start : i.stop]
        part[..., 0] = torch.where(count == 0, 0, first + j.start)
        part[..., 1] = torch.where(count == 0, 0, ended + j.start)
    return spans
