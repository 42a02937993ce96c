"""Attention along the edges of a graph, in time and memory of the edges: a query meets its neighbours alone.

Queries of about as many neighbours are put together, so that every weigher sees whole rows; values are mixed by sparse
products, which hold no number for an edge but its weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.core import Mask, Pair
from regard.core.masks import And
from regard.core.sizes import Neighbours
from regard.engine.backends.edges.graph import Graph, find_graph
from regard.engine.call import Call, Cost
from regard.engine.double_backward import Again
from regard.mask import Edges
from regard.mask.edges import Neighbourhoods
from regard.score import Dot
from regard.weigh import Softmax

# rows in the compute dtype, a key head for each query head; NaN under a mask is `attend`'s to remove
LIFTS, HANDLES_NAN, TWICE_DIFFERENTIABLE, AUTOCASTS, TRACEABLE = True, False, True, True, False
errs = None
# of all pairs, the share that edges are from which on tiles take less, or torch's own kernel with its mask written out;
# which does so, too, where pairs are as few as this
DENSE, DENSE_DOT, FEW = 0.25, 0.1, 2**17


def refuse(call: Call) -> str | None:
    if call.sizes.device.type != "cpu":
        return f"it runs on the CPU, not on {call.sizes.device}."
    return None if _split(call.mask) else "its mask must be Edges, or Edges & others."


def decline(call: Call) -> str | None:
    pairs = call.sizes.n * call.sizes.m
    share = _count(call) / max(1, pairs)
    is_softmax = type(call.weigh) is Softmax and call.weigh.sink is None
    is_torchs = _is_sparse(call) and is_softmax and call.bias is None
    if is_torchs and pairs <= FEW:
        return f"torch's own kernel takes less for {pairs} pairs."
    limit = DENSE_DOT if is_torchs else DENSE
    return f"{share:.0%} of all pairs are edges: others take less from {limit:.0%} on." if share >= limit else None


def estimate(call: Call) -> Cost:
    s, size = call.sizes, call.compute_dtype.itemsize
    pairs = s.b * s.h * _count(call)
    ends = s.b * (s.h * s.n * (s.d + s.e) + s.g * s.m * (s.c + s.e))
    # scores, weights and what a weigher holds of them; vectors of a pair where the score needs them
    held = pairs * (4 + (0 if _is_sparse(call) else s.c * (2 if call.needs_grad else 1)))
    return Cost(2.0 * pairs * (s.d + s.e) * (3 if call.needs_grad else 1), ends * s.dtype.itemsize, held * size)


def run(call: Call, query: Tensor, key: Tensor, value: Tensor, _: Again | None = None) -> Tensor:
    split, s = _split(call.mask), call.sizes
    assert split is not None, "it was not refused"
    edges, others = split
    graph = find_graph(edges, s.n, s.m)
    # queries in the order of their neighbourhoods
    query = query.index_select(2, graph.rows)
    if _is_sparse(call):
        rows = call.score.as_dot(query, key)
        assert rows is not None, "it is a dot product"
        scores = graph.compare(rows[0].flatten(0, 1), rows[1].flatten(0, 1)).view(s.b, s.h, len(graph.keys)) * rows[2]
        parts = [_line_up(x, group) for x, group in graph.cut(scores)]
    else:
        query, key, pair = call.score.prepare(query, key)
        parts = list(_meet(graph, pair, query, key))
    weights = [_weigh(call, others, x, group) for x, group in zip(parts, graph.groups, strict=True)]
    out = graph.mix(torch.cat(weights, 2).flatten(0, 1), value.flatten(0, 1)).view(s.b, s.h, len(graph.rows), s.e)
    # a query without neighbours stays at zero
    return out.new_zeros(s.b, s.h, s.n, s.e).index_copy(2, graph.rows, out)


def _meet(graph: Graph, pair: Pair, query: Tensor, key: Tensor) -> list[Tensor]:
    """Scores (b · r, h, 1, w) of each group, from vectors of pairs."""
    b, h, _, c = key.shape
    found, start = [], 0
    keys = graph.gather(key.flatten(0, 1)).view(b, h, len(graph.keys), c)
    for own, group in graph.cut(keys):
        count = len(group.rows)
        ours = query[:, :, start : start + count].transpose(1, 2).flatten(0, 1)[:, :, None]
        theirs = _unfold(own, group).transpose(1, 2).flatten(0, 1)
        found.append(pair(ours, theirs, *pair.tensors))
        start += count
    return found


def _line_up(scores: Tensor, group: Neighbourhoods) -> Tensor:
    """Numbers of a group's edges (b, h, r · w) as rows (b · r, h, 1, w)."""
    return _unfold(scores, group).transpose(1, 2).flatten(0, 1)[:, :, None]


def _unfold(x: Tensor, group: Neighbourhoods) -> Tensor:
    """Numbers of a group's edges (b, h, r · w, …) as (b, h, r, w, …)."""
    return x.view(*x.shape[:2], *group.keys.shape, *x.shape[3:])


def _weigh(call: Call, others: Mask | None, scores: Tensor, group: Neighbourhoods) -> Tensor:
    """The weights (b, h, r · w) of a group, each query with its heads as a sequence of its own."""
    s, count = call.sizes, len(group.rows)
    places = Neighbours(range(s.b), range(s.h), range(s.n), range(s.m), s.device, group.rows, group.keys)
    scores = scores.to(call.compute_dtype)
    if call.bias is not None:
        scores = scores + call.bias(*places.index())
    allowed = group.is_there.repeat(s.b, 1)[:, None, None]
    if others is not None:
        allowed = allowed & others(*places.index())
    weights = call.weigh(scores, allowed.expand(scores.shape), places)
    keep = call.keep(places)
    if keep is not None:
        weights = weights * keep
    return weights.view(s.b, count, s.h, group.keys.shape[1]).transpose(1, 2).flatten(2)


def _is_sparse(call: Call) -> bool:
    """Whether scores are sparse products of rows."""
    return call.score.is_dot and not (isinstance(call.score, Dot) and call.score.cap is not None)


def _count(call: Call) -> int:
    split = _split(call.mask)
    assert split is not None, "it was not refused"
    return split[0].count


def _split(mask: Mask) -> tuple[Edges, Mask | None] | None:
    """The edges of a mask, and the masks that must allow a pair beside them; None where it has no edges."""
    if isinstance(mask, Edges):
        return mask, None
    if not isinstance(mask, And):
        return None
    for one, other in ((mask.one, mask.other), (mask.other, mask.one)):
        found = _split(one)
        if found is not None:
            return found[0], other if found[1] is None else And(found[1], other)
    return None
