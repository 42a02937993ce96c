"""NaN and infinity under a mask: they change nothing where they are hidden, and show where they are attended to.

A product with a weight of zero does not hide them, since 0 × NaN is NaN, and gradients pass the same way. So, where a
masked call holds any, its backend gets zeros in their place, and the rows that really see one are done again, each with
its own allowed keys alone. Where those are many, the whole result is lost anyway: they are taken from a run that lets
NaN spread as in plain torch, which may reach gradients of keys that only clean rows see.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.core import Tile
from regard.engine.call import Call
from regard.engine.fold import lift

Run = Callable[[Tensor, Tensor, Tensor], Tensor]

# pairs of the mask looked at together
_PAIRS = 2**20
# numbers that rows done one by one may copy, 256 MiB of float32
_NUMBERS = 2**26


def quarantine(call: Call, query: Tensor, key: Tensor, value: Tensor, run: Run, run_raw: Run) -> Tensor:
    """`run` on rows that hold only finite numbers, with the rows that see others put right.

    `run_raw` must let NaN show; it serves where too many rows see some to do them one by one.
    """
    if are_tame(call, query, key, value):
        return run(query, key, value)
    sizes = call.sizes
    repeats = sizes.h // sizes.g
    bad_keys = (_bad(key) | _bad(value)).repeat_interleave(repeats, 1)
    bad_queries = _bad(query)
    sees_any, sees_bad, seen = _scan(call, bad_keys)
    seen = seen.unflatten(1, (sizes.g, repeats)).any(2)
    rows = (bad_queries & sees_any) | sees_bad
    # numbers near the end of the range overflow in products: where nobody sees them they are zero, too
    hidden = (~sees_any, ~seen, ~seen)
    clean = (x.masked_fill((_bad(x) | far)[..., None], 0.0) for x, far in zip((query, key, value), hidden, strict=True))
    out = run(*clean)
    at = rows.nonzero().tolist()
    if not at:
        return out
    if len(at) * sizes.h * sizes.m * (sizes.c + sizes.e) > _NUMBERS:
        return torch.where(rows[..., None], run_raw(query, key, value), out)
    lifted, query, key, value = lift(call, query, key, value)
    shown = torch.stack([_row(lifted, query, key, value, b, h, i) for b, h, i in at]).to(out.dtype)
    places = tuple(torch.tensor(at, device=out.device).T)
    return out.index_put(places, shown)


def are_finite(call: Call, *rows: Tensor) -> bool:
    """Whether all numbers are finite, by the quickest look: a sum is finite only if all is, unless it overflows."""
    dtype = call.compute_dtype
    return all(math.isfinite(x.detach().sum(dtype=dtype).item()) for x in rows)


def are_tame(call: Call, *rows: Tensor) -> bool:
    """Whether all numbers are finite, and so far from the end of the range that their products are, too."""
    limit = torch.finfo(call.compute_dtype).max / 2**80
    for x in rows:
        if x.numel():
            low, high = torch.aminmax(x.detach())
            # NaN compares as not smaller
            if not max(-low.item(), high.item()) < limit:
                return False
    return True


def _bad(x: Tensor) -> Tensor:
    return ~x.detach().isfinite().all(-1)


def _scan(call: Call, bad_keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each query, whether it may attend to anything and to a bad key; for each key, whether any query may."""
    s = call.sizes
    sees_any = torch.zeros(s.b, s.h, s.n, dtype=torch.bool, device=s.device)
    sees_bad = torch.zeros_like(sees_any)
    seen = torch.zeros_like(bad_keys)
    step = max(1, _PAIRS // max(1, s.b * s.h * s.m))
    for start in range(0, s.n, step):
        tile = Tile(range(s.b), range(s.h), range(start, min(start + step, s.n)), range(s.m), s.device)
        allowed = call.mask.tile(tile).expand(tile.shape)
        sees_any[:, :, start : tile.i.stop] = allowed.any(-1)
        sees_bad[:, :, start : tile.i.stop] = (allowed & bad_keys[:, :, None]).any(-1)
        seen |= allowed.any(-2)
    return sees_any, sees_bad, seen


def _row(call: Call, query: Tensor, key: Tensor, value: Tensor, b: int, h: int, i: int) -> Tensor:
    """One query with its allowed keys and no others, by the definitions of the terms."""
    s = call.sizes
    tile = Tile(range(b, b + 1), range(h, h + 1), range(i, i + 1), range(s.m), s.device)
    keys = call.mask.tile(tile).expand(tile.shape).flatten().nonzero().flatten()
    # a score may hold tensors by head: give it all heads, and take the one
    scores = call.score(query[b : b + 1, :, i : i + 1], key[b : b + 1, :, keys])[:, h : h + 1].to(value.dtype)
    if call.bias is not None:
        scores = scores + call.bias.tile(tile).expand(tile.shape)[..., keys]
    # a weigher that draws needs the place of each key: let it see the whole row, hidden keys at -inf
    full = scores.new_full(tile.shape, -torch.inf).index_copy(-1, keys, scores)
    allowed = torch.zeros(tile.shape, dtype=torch.bool, device=s.device).index_fill(-1, keys, True)
    weights = call.weigh(full, allowed, tile)[..., keys]
    keep = call.keep(tile)
    if keep is not None:
        weights = weights * keep[..., keys]
    return (weights @ value[b : b + 1, h : h + 1, keys])[0, 0, 0]
