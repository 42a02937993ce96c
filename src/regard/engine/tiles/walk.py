"""The walk over all tiles of a call: forward once, backward once, never more than a tile of scores at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.core import Bias, Online, Pointwise, Row, Tile
from regard.engine.tiles.steps import Extras
from regard.engine.tiles.work import Work, cut_heads, cut_keys, cut_queries

# learned tensors of no more numbers are summed up over all tiles in a wider dtype
SMALL = 2**16


def walk_forward(work: Work, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the row statistic that the backward walk needs (empty where the weigher has none)."""
    sizes, weigh, steps = work.call.sizes, work.call.weigh, work.steps
    out = value.new_zeros(sizes.b, sizes.h, sizes.n, sizes.e)
    num_stats = weigh.num_stats if isinstance(weigh, Online) else 0
    stat = value.new_full((sizes.b, sizes.h, sizes.n, num_stats), float("inf"))
    for row in work.layout.rows(sizes, work.call.mask):
        q, acc = cut_queries(query, row), cut_queries(out, row)
        tensors = work.of_heads(row)
        tiles = list(work.layout.tiles(row))
        held = widen(acc) if len(tiles) > 1 else acc.dtype
        total = acc.new_zeros(acc.shape, dtype=held)
        if isinstance(weigh, Online):
            peak, mass = weigh.begin(row, acc)
            mass = mass.to(held)
        for tile in tiles:
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
    dtensors = tuple(t.new_zeros(t.shape, dtype=widen(t) if t.numel() <= SMALL else t.dtype) for t in work.tensors)
    of_pair, of_weigh, of_bias = work.split(dtensors)
    for row in work.layout.rows(sizes, work.call.mask):
        q, g = cut_queries(query, row), cut_queries(grad, row)
        tensors = work.of_heads(row)
        mean = cut = None
        if isinstance(weigh, Online):
            mean = (g * cut_queries(out, row)).sum(-1, keepdim=True)
            cut = cut_queries(stat, row)
            for whole, part in zip(of_weigh, weigh.tensor_gradients(row, mean, cut), strict=True):
                whole += part
            if work.layout.keys is not None and len(row.j) <= work.layout.keys:
                mean = None
        tiles = list(work.layout.tiles(row))
        of_row = cut_queries(dquery, row)
        held = torch.zeros_like(of_row, dtype=widen(of_row)) if len(tiles) > 1 else of_row
        for tile in tiles:
            extras = _extras(work, tile)
            if extras is None:
                continue
            k, v = cut_keys(key, tile), cut_keys(value, tile)
            where = tile if isinstance(weigh, Row) else None
            dv, dscores, (dq, dk, *rest) = work.steps.backward(
                work.pair, weigh, q, k, v, tensors, extras, g, mean, cut, where
            )
            cut_keys(dvalue, tile).add_(dv)
            if dq is not None:
                held.add_(dq)
            if dk is not None:
                cut_keys(dkey, tile).add_(dk)
            for all_heads, dt in zip(of_pair, rest, strict=True):
                if dt is not None:
                    (all_heads if work.pair.keeps_heads else cut_heads(all_heads, tile)).add_(dt)
            if bias is not None:
                _add_bias_gradients(bias, tile, dscores, of_bias)
        if held is not of_row:
            of_row.copy_(held)
    return dquery, dkey, dvalue, *(x.to(t.dtype) for x, t in zip(dtensors, work.tensors, strict=True))


def widen(like: Tensor) -> torch.dtype:
    """The dtype of sums over many tiles: float64 for float32, which would gather the rounding of each tile."""
    # Apple's devices have no float64
    return torch.float64 if like.dtype == torch.float32 and like.device.type != "mps" else like.dtype


def _add_bias_gradients(bias: Bias, tile: Tile, dscores: Tensor, grads: tuple[Tensor, ...]) -> None:
    """Add a tile's gradients of a bias, which sums them up in its own dtype, to those of all tiles."""
    pairs = list(zip(grads, bias.tensors, strict=True))
    parts = tuple(x if x.dtype == t.dtype else torch.zeros_like(t) for x, t in pairs)
    bias.add_gradients(tile, dscores, parts)
    for whole, part in zip(grads, parts, strict=True):
        if whole is not part:
            whole += part


def _extras(work: Work, tile: Tile) -> Extras | None:
    """Bias, mask and dropout of a tile, or None where the mask leaves nothing of it."""
    allowed = work.call.allowed(tile)
    if allowed is not None:
        if not allowed.any():
            return None
        allowed = allowed.expand(tile.shape)
    bias = None if work.call.bias is None else work.call.bias.tile(tile)
    return bias, allowed, work.call.keep(tile)
