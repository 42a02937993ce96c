"""The statistics of a look, compared with rows that were recomputed in full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import Sizes
from regard.engine.look import Look

# what a look may be off by, beside rounding: it sums in single precision, where a layer has no more than that
LEAST = {torch.float64: 1e-9}
OTHERWISE = 1e-3
Said = tuple[str, Tensor, list[Tensor]]


@dataclass(frozen=True)
class SampledRows:
    """Recomputed rows of weights (row, m), in float64 and in the layer's own dtype, and their places in (b, h, n)."""

    b: Tensor
    h: Tensor
    i: Tensor
    exact: Tensor
    rounded: Tensor


def compare(
    look: Look, sizes: Sizes, rows: SampledRows, dtype: torch.dtype, window: int, most: float
) -> dict[str, Tensor]:
    """The error of each statistic of a look on these rows, in units of what is tolerated."""
    found: dict[str, Tensor] = {}
    eps = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    for name, said, pair in _list(look, sizes, rows, window):
        said, exact, rounded = (x.double() for x in (said, *pair))
        scale = exact.abs().clamp(min=1.0)
        may = most * ((rounded - exact).abs() + eps * scale) + LEAST.get(dtype, OTHERWISE) * scale
        off = ((said - exact).abs() / may).masked_fill((said == exact) | (said.isnan() & exact.isnan()), 0.0)
        worst = off.nan_to_num(torch.inf, torch.inf).amax() if off.numel() else off.new_zeros(())
        found[name] = torch.maximum(found[name], worst) if name in found else worst
    return found


def compare_sums(look: Look) -> dict[str, Tensor]:
    """The same for the sums of all weights, which a look has in three ways."""
    total = look.total.double().sum(-1)
    may = OTHERWISE * (1.0 + look.total.double().abs().sum(-1))
    found = {}
    for name, said in (("received", look.received.double().sum(-1)), ("map", look.map.double().sum((-2, -1)))):
        # what is not a number is left to the rows
        off = ((said - total).abs() / may).nan_to_num(0.0, torch.inf)
        found[name] = off.amax() if off.numel() else off.new_zeros(())
    return found


def _list(look: Look, sizes: Sizes, rows: SampledRows, window: int) -> Iterator[Said]:
    """Name, what is said, and what that is of the exact and the rounded rows."""
    n, m = sizes.n, sizes.m

    def fold(x: Tensor, axes: int) -> Tensor:
        return x.reshape(sizes.b, sizes.h, *x.shape[x.ndim - axes :])

    def cut(x: Tensor, axes: int) -> Tensor:
        return fold(x, axes)[rows.b, rows.h, rows.i]

    away = (rows.i.unsqueeze(-1) + (m - n) - torch.arange(m, device=rows.i.device)).abs()
    pair = rows.exact, rows.rounded
    shares = [x.abs() / x.abs().sum(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny) for x in map(_lift, pair)]
    exact, rounded = map(_lift, pair)
    yield "entropy", cut(look.entropy, 1), [torch.special.entr(x).sum(-1) for x in shares]
    yield "distance", cut(look.distance, 1), [(x * away).sum(-1) for x in shares]
    yield "peak", cut(look.peak, 1), [x.amax(-1).clamp(min=0.0) for x in (exact, rounded)]
    yield "total", cut(look.total, 1), [x.sum(-1) for x in (exact, rounded)]
    yield "first", cut(look.first, 1), [x[:, 0] for x in (exact, rounded)]
    yield "local", cut(look.local, 1), [x.masked_fill(away > window, 0.0).sum(-1) for x in (exact, rounded)]
    keys, weights = cut(look.top_keys, 2), cut(look.top_weights, 2)
    # ties may be in any order: all together are the largest, and what is said of a key is its weight
    if not bool((exact < 0).any()):
        yield "top_weights", weights, [x.topk(keys.shape[-1], -1).values for x in (exact, rounded)]
    picked = [x.gather(-1, keys.clamp(min=0)).masked_fill(keys < 0, 0.0) for x in (exact, rounded)]
    yield "top_keys", weights, picked
    tall, wide = look.block
    if tall == 1:
        blocks = torch.arange(m, device=away.device) // wide
        of_blocks = [x.new_zeros(len(x), look.map.shape[-1]).index_add_(-1, blocks, x) for x in (exact, rounded)]
        yield "map", cut(look.map, 2), of_blocks
    if n == 1:
        yield "received", fold(look.received, 1)[rows.b, rows.h], [exact, rounded]
    if look.query is not None and look.key is not None and look.logsumexp is not None and look.spans is not None:
        key = look.key.reshape(sizes.b, -1, m, look.key.shape[-1])
        served = sizes.h // key.shape[1]
        spans = look.spans.expand(*look.entropy.shape, 2)
        start, stop = cut(spans, 2).unsqueeze(1).unbind(-1)
        place = torch.arange(m, device=away.device)
        query, logsumexp = cut(look.query, 2).double(), cut(look.logsumexp, 1).double()
        # one row after the other: the keys of all of them are many
        scores = torch.stack([key[b, h // served].double() @ q for b, h, q in zip(rows.b, rows.h, query, strict=True)])
        kept = (scores - logsumexp.unsqueeze(-1)).exp().masked_fill((place < start) | (place >= stop), 0.0)
        yield "kept", kept, [exact, rounded]


def _lift(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
