"""A look at the rows of a softmax, first pass: each row's total, entropy and mean distance, and where its top begins.

Scores are the dot products as they come where `FOLD` is set, with the scale multiplied in later; else they are scaled.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.masks import allow, bound_keys
from regard.engine.backends.fused.kernels.tiles import find_rows, load_rows, multiply, score_tile


class Found(NamedTuple):
    """What is found of each row: (b, h, n) float32."""

    base: Any  # the largest score in powers of two, the sink's with it; infinity in a row without keys
    share: Any  # one over the sum of 2^(score − base)
    bar: Any  # at least `TOP` keys of the row score as high, unless it is −inf
    logsumexp: Any
    entropy: Any
    peak: Any
    total: Any
    distance: Any
    first: Any
    local: Any


@triton.jit
def survey_rows(
    q, k, found, score, weigh, mask, bias, size, place, d: tl.constexpr, UNIT: tl.constexpr, FOLD: tl.constexpr,
    TOP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """One block of queries; query i stands at key i + place."""
    blocks = tl.cdiv(size.n, ROWS)
    block = blocks - 1 - tl.program_id(0) % blocks
    b = tl.program_id(0) // blocks // size.heads
    h = tl.program_id(0) // blocks % size.heads
    start, whole_start, whole_stop, stop = bound_keys(mask, b, block * ROWS, size.n, size.m, ROWS, KEYS)
    i = block * ROWS + tl.arange(0, ROWS)[:, None]
    query = load_rows(q, b, h, block * ROWS, size.n, d, ROWS, D, True)
    total = tl.zeros([ROWS, 1], tl.float32)
    slope, way, base = total, total, total - float("inf")
    # the largest score of each column of tiles
    most = tl.full([ROWS, KEYS], -float("inf"), tl.float32)
    if mask.before is not None:
        for at in range(start, tl.minimum(whole_start, stop), KEYS):
            most, base, total, slope, way = _absorb(
                most, base, total, slope, way, query, k, b, h, i, at, score, mask, bias, size, place, d, UNIT, FOLD, D,
                ROWS, KEYS, PRECISION, FAST, True,
            )  # fmt: skip
    for at in range(whole_start, whole_stop, KEYS):
        most, base, total, slope, way = _absorb(
            most, base, total, slope, way, query, k, b, h, i, at, score, mask, bias, size, place, d, UNIT, FOLD, D,
            ROWS, KEYS, PRECISION, FAST, False,
        )  # fmt: skip
    for at in range(whole_stop, stop, KEYS):
        most, base, total, slope, way = _absorb(
            most, base, total, slope, way, query, k, b, h, i, at, score, mask, bias, size, place, d, UNIT, FOLD, D,
            ROWS, KEYS, PRECISION, FAST, True,
        )  # fmt: skip

    nothing = total == 0.0
    safe = tl.where(nothing, 1.0, total)
    # shares are of the keys alone, and know no sink
    entropy = (tl.log2(safe) - slope / safe) * 0.6931471805599453
    row = (b * size.heads + h).to(tl.int64) * size.n + i
    here = i < size.n
    # written so that NaN stays
    tl.store(found.entropy + row, tl.where(nothing | (entropy < 0), 0.0, entropy), mask=here)
    tl.store(found.distance + row, way / safe, mask=here)
    all_base, all_total = base, total
    if weigh.sink is not None:
        sink = tl.load(weigh.sink + h * weigh.sink_h).to(tl.float32) * UNIT
        all_base = tl.maximum(base, sink)
        decay = tl.exp2(base - tl.where(all_base == -float("inf"), 0.0, all_base))
        all_total = total * decay + tl.exp2(sink - tl.where(all_base == -float("inf"), 0.0, all_base))
        peak = decay / all_total
    else:
        peak = 1.0 / safe
    all_total = tl.where(nothing, 1.0, all_total)
    share = tl.where(nothing, 0.0, 1.0 / all_total)
    tl.store(found.peak + row, tl.where(nothing, 0.0, peak), mask=here)
    tl.store(found.total + row, tl.where(nothing, 0.0, total * peak), mask=here)
    tl.store(found.share + row, share, mask=here)
    # a weight is e^−inf = 0 where there is no mass
    tl.store(found.base + row, tl.where(nothing, float("inf"), all_base), mask=here)
    logsumexp = (all_base + tl.log2(all_total)) * 0.6931471805599453
    tl.store(found.logsumexp + row, tl.where(nothing, float("inf"), logsumexp), mask=here)
    if TOP > 0:
        tl.store(found.bar + row, _find_bar(most, TOP), mask=here)


@triton.jit
def score_keys(
    query, k, b, h, i, j, score, bias, size, d: tl.constexpr, UNIT: tl.constexpr, FOLD: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
    CHECK: tl.constexpr,
):  # fmt: skip
    """The scores of a tile, the same bits in each pass."""
    x = tl.arange(0, D)[:, None]
    at = find_rows(k, b, h // size.group) + j.to(tl.int64) * k.i + x * k.d
    if CHECK:
        key = tl.load(at, mask=(j < size.m) & (x < d), other=0.0)
    elif d == D:
        key = tl.load(at)
    else:
        key = tl.load(at, mask=x < d, other=0.0)
    if FOLD:
        return multiply(query, key, PRECISION)
    else:
        _, scores = score_tile(
            query, key, None, None, b, h, i, j, score, bias, size, d, "dot", UNIT, ROWS, KEYS, PRECISION, FAST
        )
        return scores


@triton.jit
def lift(scores, score, base, FOLD: tl.constexpr):
    """How far scores lie above a base, in powers of two."""
    if FOLD:
        return scores * score.scale - base
    else:
        return scores - base


@triton.jit
def _absorb(
    most, base, total, slope, way, query, k, b, h, i, start, score, mask, bias, size, place, d: tl.constexpr,
    UNIT: tl.constexpr, FOLD: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    PRECISION: tl.constexpr, FAST: tl.constexpr, CHECK: tl.constexpr,
):  # fmt: skip
    """One more tile of keys; `CHECK` where not all of its pairs meet."""
    # turned a little in each tile, so that keys that come with a period are not all in one column
    j = start + (tl.arange(0, KEYS)[None, :] + start // KEYS * 5) % KEYS
    scores = score_keys(query, k, b, h, i, j, score, bias, size, d, UNIT, FOLD, D, ROWS, KEYS, PRECISION, FAST, CHECK)
    if CHECK:
        scores = tl.where(allow(mask, b, h, i, j, size.n, size.m), scores, -float("inf"))
    most = tl.maximum(most, scores)
    highest = tl.max(scores, 1, keep_dims=True)
    if FOLD:
        highest = highest * score.scale
    risen = tl.maximum(base, highest)
    # a row with nothing yet: −inf minus −inf would be NaN where e^−inf = 0 is meant
    safe = tl.where(risen == -float("inf"), 0.0, risen)
    above = lift(scores, score, safe, FOLD)
    parts = tl.exp2(above)
    decay = tl.exp2(base - safe)
    # Σ part·above, where `above` falls by as much as the base rises; zero times −inf would be NaN
    fallen = tl.where(base == -float("inf"), 0.0, base - safe)
    slope = (slope + fallen * total) * decay + tl.sum(parts * tl.maximum(above, -1024.0), 1, keep_dims=True)
    total = total * decay + tl.sum(parts, 1, keep_dims=True)
    far = tl.abs((i + place).to(tl.float32) - j.to(tl.float32))
    way = way * decay + tl.sum(parts * far, 1, keep_dims=True)
    return most, risen, total, slope, way


@triton.jit
def _find_bar(most, TOP: tl.constexpr):
    """The `TOP`-th largest of each row of `most`, equals counted one by one."""
    bar = tl.max(most, 1, keep_dims=True)
    above = tl.zeros(bar.shape, tl.int32)
    for _ in range(TOP):
        best = tl.max(most, 1, keep_dims=True)
        bar = tl.where(above < TOP, best, bar)
        above += tl.sum(tl.where(most == best, 1, 0), 1, keep_dims=True)
        most = tl.where(most == best, -float("inf"), most)
    return bar
