"""What the backward kernels share: a tile's weights and the gradient of its scores, and sums over features."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.bits import keep
from regard.engine.backends.fused.kernels.masks import allow
from regard.engine.backends.fused.kernels.scores import PLAIN, SINGLE, SMALL, bend, slope_dot
from regard.engine.backends.fused.kernels.tiles import find_features, multiply, score_tile
from regard.engine.backends.fused.kernels.weighs import slope_weights, weigh_again


class Features(NamedTuple):
    """Gradients by feature, float32 like the features themselves; of the weights, one share for each query."""

    rows: Any = None
    weights: Any = None


@triton.jit
def pull_tile(
    q, k, value, dout, b, h, i, start, one, other, mean, score, weigh, mask, bias, noise, size, d: tl.constexpr,
    SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, AXIS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, CHECK: tl.constexpr,
):  # fmt: skip
    """Which pairs meet, scores, weights after dropout, their gradient, and the scores' without bias and with it.

    Keys lie along `AXIS`.
    What is multiplied comes the right way around: a dot product of `q` and `k` (or of `k` and `q`) gives a tile, and so
    does one of `dout` and `value`.
    """
    j = start + tl.arange(0, KEYS)
    j = j[None, :] if AXIS == 1 else j[:, None]
    TALL: tl.constexpr = ROWS if AXIS == 1 else KEYS
    WIDE: tl.constexpr = KEYS if AXIS == 1 else ROWS
    if SCORE == "dot":
        if AXIS == 1:
            left, right = q, k
        else:
            left, right = k, q
        plain, scores = score_tile(
            left, right, None, None, b, h, i, j, score, bias, size, d, SCORE, UNIT, TALL, WIDE, PRECISION, FAST
        )
    else:
        queries = find_features(score.queries, b, h, size.heads, size.n, d)
        keys = find_features(score.keys, b, h // size.group, size.heads // size.group, size.m, d)
        plain, scores = score_tile(
            None, None, queries, keys, b, h, i, j, score, bias, size, d, SCORE, UNIT, TALL, WIDE, PRECISION, FAST
        )
    weights = weigh_again(scores, j, one, other, weigh, WEIGH)
    if E == 1:
        dweights = dout * value
    elif AXIS == 1:
        dweights = multiply(dout, value, PRECISION)
    else:
        dweights = multiply(value, dout, PRECISION)
    allowed = (i < size.n) & (j < size.m)
    if CHECK:
        allowed = allow(mask, b, h, i, j, size.n, size.m)
    if noise.seed is not None:
        kept = keep(noise, b, h, i, j)
        dweights = dweights * kept
    dscores = slope_weights(scores, weights, dweights, mean, one, other, weigh, WEIGH)
    if SCORE == "dot":
        grads = slope_dot(dscores, plain, score, UNIT)
    else:
        grads = dscores
    if CHECK:
        grads = tl.where(allowed, grads, 0.0)
        dscores = tl.where(allowed, dscores, 0.0)
        weights = tl.where(allowed, weights, 0.0)
    if noise.seed is not None:
        weights = weights * kept
    return allowed, scores, weights, dweights, grads, dscores


@triton.jit
def add_features(
    features, dscores, allowed, queries, keys, b, h, own_head, own_heads, own, i, j, count, size, score,
    d: tl.constexpr, KIND: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr, OF_QUERIES: tl.constexpr,
):  # fmt: skip
    """Add a tile's part to the gradients of the features of those positions that lie along its second axis.

    They are kept in memory, since no program can hold a sum for each feature: only their owner reads and writes them,
    and the barrier lets its threads see one another's.
    """
    tl.debug_barrier()
    if KIND == "tanh":
        tier = tl.load(score.tier)
        if tier <= SINGLE:
            _add_tier(
                features,
                dscores,
                allowed,
                queries,
                keys,
                b,
                h,
                own_head,
                own_heads,
                own,
                i,
                j,
                count,
                size,
                score,
                d,
                KIND,
                FAST,
                HEAL,
                OF_QUERIES,
                SINGLE,
            )
        elif tier == SMALL:
            _add_tier(
                features,
                dscores,
                allowed,
                queries,
                keys,
                b,
                h,
                own_head,
                own_heads,
                own,
                i,
                j,
                count,
                size,
                score,
                d,
                KIND,
                FAST,
                HEAL,
                OF_QUERIES,
                SMALL,
            )
        else:
            _add_tier(
                features,
                dscores,
                allowed,
                queries,
                keys,
                b,
                h,
                own_head,
                own_heads,
                own,
                i,
                j,
                count,
                size,
                score,
                d,
                KIND,
                FAST,
                HEAL,
                OF_QUERIES,
                PLAIN,
            )
    else:
        _add_tier(
            features,
            dscores,
            allowed,
            queries,
            keys,
            b,
            h,
            own_head,
            own_heads,
            own,
            i,
            j,
            count,
            size,
            score,
            d,
            KIND,
            FAST,
            HEAL,
            OF_QUERIES,
            PLAIN,
        )


@triton.jit
def _add_tier(
    features, dscores, allowed, queries, keys, b, h, own_head, own_heads, own, i, j, count, size, score,
    d: tl.constexpr, KIND: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr, OF_QUERIES: tl.constexpr,
    TIER: tl.constexpr,
):  # fmt: skip
    for f in range(d):
        q = tl.load(queries + f * size.n + i, mask=i < size.n, other=0.0)
        k = tl.load(keys + f * size.m + j, mask=j < size.m, other=0.0)
        bent, slope = bend(q, k, KIND, TIER, FAST)
        weight = tl.load(score.weight + h * score.weight_h + f)
        factor = weight * weight if KIND == "distance" else weight
        if not OF_QUERIES and KIND == "distance":
            factor = -factor
        pulled = dscores * slope
        if HEAL:
            pulled = tl.where(allowed, pulled, 0.0)
        at = find_features(features.rows, b, own_head, own_heads, count, d) + f * count + own
        so_far = tl.load(at, mask=own < count, other=0.0)
        tl.store(at, so_far + factor * tl.sum(pulled, 0, keep_dims=True), mask=own < count)
        if features.weights is not None:
            share = dscores * bent
            if HEAL:
                share = tl.where(allowed, share, 0.0)
            if KIND == "distance":
                share = share * (2 * weight)
            at = find_features(features.weights, b, own_head, own_heads, count, d) + f * count + own
            so_far = tl.load(at, mask=own < count, other=0.0)
            tl.store(at, so_far + tl.sum(share, 0, keep_dims=True), mask=own < count)


@triton.jit
def clear_features(features, b, h, heads, own, limit, count, d: tl.constexpr):
    """Zeros again, for positions below `limit`."""
    for f in range(d):
        at = find_features(features.rows, b, h, heads, count, d) + f * count + own
        tl.store(at, tl.zeros(own.shape, tl.float32), mask=own < limit)
        if features.weights is not None:
            at = find_features(features.weights, b, h, heads, count, d) + f * count + own
            tl.store(at, tl.zeros(own.shape, tl.float32), mask=own < limit)


@triton.jit
def find_ill(features, b, h, heads, own, count, d: tl.constexpr):
    """Whether any gradient of these positions is NaN or infinite."""
    ill = tl.zeros(own.shape, tl.int32)
    for f in range(d):
        at = find_features(features.rows, b, h, heads, count, d) + f * count + own
        ill |= tl.where(tl.abs(tl.load(at, mask=own < count, other=0.0)) < float("inf"), 0, 1)
        if features.weights is not None:
            at = find_features(features.weights, b, h, heads, count, d) + f * count + own
            ill |= tl.where(tl.abs(tl.load(at, mask=own < count, other=0.0)) < float("inf"), 0, 1)
    return tl.max(ill)
