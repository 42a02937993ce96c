"""What the backward kernels share: a tile's weights and the gradient of its scores, and sums over features."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.bits import keep
from regard.engine.backends.fused.kernels.masks import allow
from regard.engine.backends.fused.kernels.scores import (
    GROWN,
    bend,
    invert,
    load_feature,
    load_weight,
    slope_dot,
)  # fmt: skip
from regard.engine.backends.fused.kernels.tiles import find_features, multiply, score_tile
from regard.engine.backends.fused.kernels.weighs import slope_weights, weigh_again


class Features(NamedTuple):
    """Gradients by feature, float32 like the features themselves; of the weights, one share for each query."""

    rows: Any = None
    weights: Any = None


@triton.jit
def pull_tile(
    q, k, value, pulled, b, h, i, start, one, other, mean, score, weigh, mask, bias, noise, size, d: tl.constexpr,
    SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, AXIS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, CHECK: tl.constexpr,
    near=False,
):  # fmt: skip
    """Which pairs meet, scores, weights after dropout, their gradient, and the scores' without bias and with it.

    Keys lie along `AXIS`.
    What is multiplied comes the right way around: a dot product of `q` and `k` (or of `k` and `q`) gives a tile, and so
    does one of `pulled` and `value`.
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
            left, right, None, None, b, h, i, j, score, bias, size, d, SCORE, UNIT, TALL, WIDE, PRECISION, FAST,
            anchor=start,
        )  # fmt: skip
    else:
        queries = find_features(score.queries, b, h, size.heads, size.n, d)
        keys = find_features(score.keys, b, h // size.group, size.heads // size.group, size.m, d)
        plain, scores = score_tile(
            None, None, queries, keys, b, h, i, j, score, bias, size, d, SCORE, UNIT, TALL, WIDE, PRECISION, FAST,
            near, start,
        )  # fmt: skip
    weights = weigh_again(scores, j, one, other, weigh, WEIGH, FAST)
    if E == 1:
        dweights = pulled * value
    elif AXIS == 1:
        dweights = multiply(pulled, value, PRECISION)
    else:
        dweights = multiply(value, pulled, PRECISION)
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
    d: tl.constexpr, KIND: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr, OF_QUERIES: tl.constexpr, near,
):  # fmt: skip
    """Add a tile's part to the gradients of the features of those positions that lie along its second axis.

    They are kept in memory, since no program can hold a sum for each feature: only their owner reads and writes them,
    and the barrier lets its threads see one another's.
    """
    tl.debug_barrier()
    if FAST:
        # taken as it is: a gather ends the layout of the matrix product, which would otherwise be changed feature by
        # feature; now each thread holds all pairs of its own position, and sums without asking others
        place = tl.arange(0, dscores.shape[0])[:, None] + tl.zeros(dscores.shape, tl.int32)
        dscores = tl.gather(dscores, place, 0)
    rows = find_features(features.rows, b, own_head, own_heads, count, d) + own
    weights = rows
    if features.weights is not None:
        weights = find_features(features.weights, b, own_head, own_heads, count, d) + own
    else:
        weights = None
    weight = score.weight + h * score.weight_h
    if KIND == "tanh":
        form = tl.load(score.form)
        if near & (form == GROWN):
            _add_pairs(rows, weights, dscores, allowed, queries, keys, weight, own, i, j, count, size, d, FAST, HEAL)
        else:
            _add_each(
                rows, weights, dscores, allowed, queries, keys, weight, own, i, j, count, size, d, KIND, form, FAST,
                HEAL, OF_QUERIES,
            )  # fmt: skip
    else:
        _add_each(
            rows, weights, dscores, allowed, queries, keys, weight, own, i, j, count, size, d, KIND, None, FAST, HEAL,
            OF_QUERIES,
        )  # fmt: skip


@triton.jit
def _add_each(
    rows, weights, dscores, allowed, queries, keys, weight, own, i, j, count, size, d: tl.constexpr, KIND: tl.constexpr,
    form, FAST: tl.constexpr, HEAL: tl.constexpr, OF_QUERIES: tl.constexpr,
):  # fmt: skip
    for f in range(d):
        q, k = load_feature(queries, keys, f, i, j, size.n, size.m)
        bent, slope = bend(q, k, KIND, form, FAST)
        w = load_weight(weight, f, d)
        factor = w * w if KIND == "distance" else w
        if not OF_QUERIES and KIND == "distance":
            factor = -factor
        _add(rows + f * count, factor * _sum(dscores * slope, allowed, HEAL), own, count)
        if weights is not None:
            grown = 2 * w if KIND == "distance" else 1.0
            _add(weights + f * count, grown * _sum(dscores * bent, allowed, HEAL), own, count)


@triton.jit
def _add_pairs(
    rows, weights, dscores, allowed, queries, keys, weight, own, i, j, count, size, d: tl.constexpr, FAST: tl.constexpr,
    HEAL: tl.constexpr,
):  # fmt: skip
    """tanh = 1 − 2r with the slope 4(r − r²), r = 1/(1 + e^{2q}e^{2k}): one division for two features."""
    whole = _sum(dscores, allowed, False)
    for f in range(0, d, 2):
        # asked for early: by the time they are added to, they have come
        row0, row1 = _load_own(rows, f, own, count), _load_own(rows, f + 1, own, count)
        part0, part1 = _load_own(weights, f, own, count), _load_own(weights, f + 1, own, count)
        q0, k0 = load_feature(queries, keys, f, i, j, size.n, size.m)
        q1, k1 = load_feature(queries, keys, f + 1, i, j, size.n, size.m)
        x0, x1 = 1 + q0 * k0, 1 + q1 * k1
        once = invert(x0 * x1, FAST)
        _add_share(rows, weights, row0, part0, x1 * once, dscores, whole, allowed, weight, f, own, count, d, HEAL)
        _add_share(rows, weights, row1, part1, x0 * once, dscores, whole, allowed, weight, f + 1, own, count, d, HEAL)


@triton.jit
def _load_own(rows, f, own, count):
    if rows is not None:
        return tl.load(rows + f * count, mask=own < count, other=0.0)
    else:
        return 0.0


@triton.jit
def _add_share(
    rows, weights, row, part, r, dscores, whole, allowed, weight, f, own, count, d: tl.constexpr, HEAL: tl.constexpr
):
    slope = _sum(dscores * (r - r * r), allowed, HEAL)
    tl.store(rows + f * count, row + 4 * load_weight(weight, f, d) * slope, mask=own < count)
    if weights is not None:
        bent = whole - 2 * _sum(dscores * r, allowed, HEAL)
        tl.store(weights + f * count, part + bent, mask=own < count)


@triton.jit
def _sum(parts, allowed, HEAL: tl.constexpr):
    """Along the first axis; to heal is to leave out what does not meet, where 0 × NaN is NaN."""
    if HEAL:
        parts = tl.where(allowed, parts, 0.0)
    return tl.sum(parts, 0, keep_dims=True)


@triton.jit
def _add(at, share, own, count):
    so_far = tl.load(at, mask=own < count, other=0.0)
    tl.store(at, so_far + share, mask=own < count)


@triton.jit
def clear_features(features, b, h, heads, own, count, d: tl.constexpr):
    """Zeros again."""
    for f in range(d):
        at = find_features(features.rows, b, h, heads, count, d) + f * count + own
        tl.store(at, tl.zeros(own.shape, tl.float32), mask=own < count)
        if features.weights is not None:
            at = find_features(features.weights, b, h, heads, count, d) + f * count + own
            tl.store(at, tl.zeros(own.shape, tl.float32), mask=own < count)


@triton.jit
def find_ill_features(features, b, h, heads, own, count, d: tl.constexpr):
    """One where a gradient of these positions is NaN or infinite, else zero."""
    ill = tl.zeros(own.shape, tl.int32)
    for f in range(d):
        at = find_features(features.rows, b, h, heads, count, d) + f * count + own
        ill |= tl.where(tl.abs(tl.load(at, mask=own < count, other=0.0)) < float("inf"), 0, 1)
        if features.weights is not None:
            at = find_features(features.weights, b, h, heads, count, d) + f * count + own
            ill |= tl.where(tl.abs(tl.load(at, mask=own < count, other=0.0)) < float("inf"), 0, 1)
    return tl.max(ill)
