"""The walk over all tiles of a call: forward once, backward once, never more than a tile of scores at a time."""

from __future__ import annotations

from torch import Tensor

from regard.core import Online, Pointwise, Row, Tile
from regard.engine.tiles.steps import Extras
from regard.engine.tiles.work import Work, cut_heads, cut_keys, cut_queries


def walk_forward(work: Work, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the row statistic that the backward walk needs (of no numbers where the weigher has none)."""
    sizes, weigh, steps = work.call.sizes, work.call.weigh, work.steps
    out = value.new_zeros(sizes.b, sizes.h, sizes.n, sizes.e)
    num_stats = weigh.num_stats if isinstance(weigh, Online) else 0
    stat = value.new_full((sizes.b, sizes.h, sizes.n, num_stats), float("inf"))
    for row in work.layout.rows(sizes, work.call.mask):
        q, acc = cut_queries(query, row), cut_queries(out, row)
        tensors = work.of_heads(row)
        total = acc.new_zeros(acc.shape)
        if isinstance(weigh, Online):
            peak, mass = weigh.start(row, acc)
        for tile in work.layout.tiles(row):
            extras = _extras(work, tile)
            if extras is None:
                continue
            k, v = cut_keys(key, tile), cut_keys(value, tile)
            if isinstance(weigh, Online):
                peak, mass, total = steps.online(work.pair, weigh, q, k, v, tensors, extras, peak, mass, total)
            elif isinstance(weigh, Pointwise):
                total = steps.pointwise(work.pair, weigh, q, k, v, tensors, extras, total)
            else:
                total = steps.row(work.pair, weigh, q, k, v, tensors, extras, tile)
        if isinstance(weigh, Online):
            finished = weigh.finish(peak, mass)
            cut_queries(stat, row).copy_(finished)
            total = total / finished[..., -1:]
        acc.copy_(total)
    return out, stat


def walk_backward(
    work: Work, query: Tensor, key: Tensor, value: Tensor, out: Tensor, stat: Tensor, grad: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value and the tensors of the terms, in that order."""
    weigh, bias, sizes = work.call.weigh, work.call.bias, work.call.sizes
    dtype = value.dtype
    dquery, dkey, dvalue = (x.new_zeros(x.shape, dtype=dtype) for x in (query, key, value))
    dtensors = tuple(t.new_zeros(t.shape) for t in work.tensors)
    of_pair, of_weigh, of_bias = work.split(dtensors)
    for row in work.layout.rows(sizes, work.call.mask):
        q, g = cut_queries(query, row), cut_queries(grad, row)
        tensors = work.of_heads(row)
        mean = cut = None
        if isinstance(weigh, Online):
            mean = (g * cut_queries(out, row)).sum(-1, keepdim=True)
            cut = cut_queries(stat, row)
            for whole, part in zip(of_weigh, weigh.slope_tensors(row, mean, cut), strict=True):
                whole += part
            if work.layout.keys is not None and len(row.j) <= work.layout.keys:
                mean = None
        for tile in work.layout.tiles(row):
            extras = _extras(work, tile)
            if extras is None:
                continue
            k, v = cut_keys(key, tile), cut_keys(value, tile)
            where = tile if isinstance(weigh, Row) else None
            dv, dscores, (dq, dk, *rest) = work.steps.back(
                work.pair, weigh, q, k, v, tensors, extras, g, mean, cut, where
            )
            cut_keys(dvalue, tile).add_(dv)
            if dq is not None:
                cut_queries(dquery, tile).add_(dq)
            if dk is not None:
                cut_keys(dkey, tile).add_(dk)
            for all_heads, dt in zip(of_pair, rest, strict=True):
                if dt is not None:
                    (all_heads if work.pair.keeps_heads else cut_heads(all_heads, tile)).add_(dt)
            if bias is not None:
                bias.pull(tile, dscores, of_bias)
    return dquery, dkey, dvalue, *dtensors


def _extras(work: Work, tile: Tile) -> Extras | None:
    """Bias, mask and dropout of a tile, or None where the mask leaves nothing of it."""
    allowed = work.call.allowed(tile)
    if allowed is not None:
        if not allowed.any():
            return None
        allowed = allowed.expand(tile.shape)
    bias = None if work.call.bias is None else work.call.bias.tile(tile)
    return bias, allowed, work.call.keep(tile)
