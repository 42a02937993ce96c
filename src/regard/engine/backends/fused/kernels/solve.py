"""Weighers that need a whole row first: entmax looks for its threshold, hard attention for its key."""

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.bits import draw
from regard.engine.backends.fused.kernels.masks import allow, bound_keys
from regard.engine.backends.fused.kernels.scores import are_near
from regard.engine.backends.fused.kernels.tiles import find_features, load_rows, score_tile
from regard.engine.backends.fused.kernels.weighs import gap, raise_to, take_power

# thresholds lie in [−1, 0]; a row is solved when its next step is smaller than this
CLOSE: tl.constexpr = tl.constexpr(1e-7)
MOST: tl.constexpr = tl.constexpr(50)


@triton.jit
def solve_rows(
    q, k, stat, score, weigh, mask, bias, draws, size, d: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Peak and threshold of a block of rows, or its best key."""
    blocks = tl.cdiv(size.n, ROWS)
    block = blocks - 1 - tl.program_id(0) % blocks
    b = tl.program_id(0) // blocks // size.heads
    h = tl.program_id(0) // blocks % size.heads
    start, _, _, stop = bound_keys(mask, b, block * ROWS, size.n, size.m, ROWS, KEYS)
    AXIS: tl.constexpr = 1 if SCORE == "dot" else 0
    i = block * ROWS + tl.arange(0, ROWS)
    i = i[:, None] if AXIS == 1 else i[None, :]
    query = 0.0
    if SCORE == "dot":
        query = load_rows(q, b, h, block * ROWS, size.n, d, ROWS, D, True)
    none = tl.zeros([ROWS, 1], tl.float32) if AXIS == 1 else tl.zeros([1, ROWS], tl.float32)
    peak, best, ill = none - float("inf"), none - 1.0, none
    for at in range(start, stop, KEYS):
        scores, j = _see(
            query, k, b, h, i, block * ROWS, at, score, mask, bias, size, d, SCORE, D, ROWS, KEYS, PRECISION, FAST
        )
        if draws.seed is not None:
            # the largest of score + Gumbel noise is a draw from the softmax
            scores -= tl.log(-tl.log(draw(draws.seed, b, h, i, j, 1)))
        top = tl.max(scores, AXIS, keep_dims=True)
        if WEIGH == "hard":
            ill = tl.maximum(ill, tl.max(tl.where(scores != scores, 1.0, 0.0), AXIS, keep_dims=True))
            # the first of equals
            first = tl.min(tl.where(scores == top, j, 2147483647), AXIS, keep_dims=True)
            best = tl.where(top > peak, first.to(tl.float32), best)
        peak = tl.maximum(peak, top)
    row = (b * size.heads + h).to(tl.int64) * size.n + i
    if WEIGH == "hard":
        tl.store(stat.at + row, tl.where(ill > 0, float("nan"), best), mask=i < size.n)
    else:
        peak = tl.where(peak == -float("inf"), 0.0, peak)
        threshold = none - 1.0
        left = MOST + 0
        while left > 0:
            mass, rate = none, none
            for at in range(start, stop, KEYS):
                scores, j = _see(
                    query, k, b, h, i, block * ROWS, at, score, mask, bias, size, d, SCORE, D, ROWS, KEYS, PRECISION,
                    FAST,
                )  # fmt: skip
                gaps = gap(scores, peak, threshold, weigh)
                mass += tl.sum(take_power(gaps, weigh, WEIGH), AXIS, keep_dims=True)
                if WEIGH == "entmax2":
                    rate += tl.sum(tl.where(gaps > 0, 1.0, 0.0), AXIS, keep_dims=True)
                elif WEIGH == "entmax1.5":
                    rate += tl.sum(gaps, AXIS, keep_dims=True)
                else:
                    rate += tl.sum(raise_to(gaps, weigh.power - 1), AXIS, keep_dims=True)
            # Newton's rule on the norm of the gaps, which up to an alpha of two is convex and nearly straight
            if WEIGH == "entmax2":
                norm = none + 1.0
            elif WEIGH == "entmax1.5":
                norm = tl.sqrt(mass)
            else:
                norm = raise_to(mass, 1 - weigh.steep)
            risen = threshold + tl.where(rate > 0, (mass - norm) / tl.where(rate > 0, rate, 1.0), 0.0)
            moved = tl.max(tl.where((i < size.n) & (rate > 0), tl.abs(risen - threshold), 0.0))
            threshold = risen
            left = tl.where(moved > CLOSE, left - 1, 0)
        tl.store(stat.at + row, peak, mask=i < size.n)
        tl.store(stat.at + stat.apart + row, threshold, mask=i < size.n)


@triton.jit
def _see(
    query, k, b, h, i, first, start, score, mask, bias, size, d: tl.constexpr, SCORE: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """A tile of scores, −inf where a pair does not meet, and its keys."""
    AXIS: tl.constexpr = 1 if SCORE == "dot" else 0
    g = h // size.group
    j = start + tl.arange(0, KEYS)
    j = j[None, :] if AXIS == 1 else j[:, None]
    if SCORE == "dot":
        key = tl.trans(load_rows(k, b, g, start, size.m, d, KEYS, D, True))
        _, scores = score_tile(
            query, key, None, None, b, h, i, j, score, bias, size, d, SCORE, 1.0, ROWS, KEYS, PRECISION, FAST
        )
    else:
        queries = find_features(score.queries, b, h, size.heads, size.n, d)
        keys = find_features(score.keys, b, g, size.heads // size.group, size.m, d)
        near = are_near(score, b, h, first, start, size.heads, size.group, size.n, size.m, ROWS, KEYS)
        _, scores = score_tile(
            None, None, queries, keys, b, h, i, j, score, bias, size, d, SCORE, 1.0, KEYS, ROWS, PRECISION, FAST, near
        )  # fmt: skip
    return tl.where(allow(mask, b, h, i, j, size.n, size.m), scores, -float("inf")), j
