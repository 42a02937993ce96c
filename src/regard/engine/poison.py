"""NaN and infinity under a mask: without effect where they are masked, visible where they are attended to.

A product with a weight of zero does not hide them, since 0 × NaN is NaN, and gradients pass the same way. So, where a
masked call holds any, its backend gets zeros in their place, and the rows that really see one are done again, each with
its own allowed keys alone. Where those are many, the whole result is lost anyway: they are taken from a run that lets
NaN spread as in plain torch, which may reach gradients of keys that only clean rows see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.core import Tile
from regard.engine.call import Call
from regard.engine.fold import lift

# pairs of the mask looked at together
_PAIRS = 2**20
# numbers that rows done one by one may copy, 256 MiB of float32
_NUMBERS = 2**26


@dataclass(frozen=True, eq=False)
class Poisoned:
    """A call with NaN or infinity: its tensors without those, and the queries that do attend to one."""

    call: Call
    clean: tuple[Tensor, Tensor, Tensor]
    rows: Tensor

    @cached_property
    def places(self) -> list[list[int]]:
        """(sequence, head, query) of each row that attends to one."""
        at: list[list[int]] = self.rows.nonzero().tolist()
        return at

    @property
    def is_widespread(self) -> bool:
        """Whether these rows are too many to recompute them one by one."""
        s = self.call.sizes
        return len(self.places) * s.h * s.m * (s.c + s.e) > _NUMBERS

    def mend(self, out: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The result of the clean tensors, with the rows that attend to NaN or infinity recomputed one by one."""
        if not self.places:
            return out
        lifted, query, key, value = lift(self.call, query, key, value)
        shown = torch.stack([_row(lifted, query, key, value, b, h, i) for b, h, i in self.places]).to(out.dtype)
        return out.index_put(tuple(torch.tensor(self.places, device=out.device).T), shown)


def find_poison(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Poisoned | None:
    """The call without its NaN and infinity, and the rows that attend to one; None where all numbers are tame."""
    if are_tame(call, query, key, value):
        return None
    sizes = call.sizes
    repeats = sizes.h // sizes.g
    bad_keys = (_bad(key) | _bad(value)).repeat_interleave(repeats, 1)
    bad_queries = _bad(query)
    sees_any, sees_bad, seen = _scan(call, bad_keys)
    seen = seen.unflatten(1, (sizes.g, repeats)).any(2)
    rows = (bad_queries & sees_any) | sees_bad
    # numbers near the end of the range overflow in products: where nobody sees them they are zero, too
    hidden = ((query, ~sees_any), (key, ~seen), (value, ~seen))
    clean = [x.masked_fill((_bad(x) | far)[..., None], 0.0) for x, far in hidden]
    return Poisoned(call, (clean[0], clean[1], clean[2]), rows)


def are_finite(call: Call, *rows: Tensor) -> bool:
    """Whether all numbers are finite, by their sum, which is not if one is not, or if it overflows."""
    dtype = call.compute_dtype
    return all(math.isfinite(x.detach().sum(dtype=dtype).item()) for x in rows)


def are_tame(call: Call, *rows: Tensor) -> bool:
    """Whether all numbers are finite, and so far from the end of the range that their products are finite, too."""
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
