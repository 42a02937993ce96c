"""The output, block of queries by block of queries, and what a backward pass needs to know of each row."""

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.bits import keep
from regard.engine.backends.fused.kernels.masks import allow, bound_keys, meet, turn, turn_back
from regard.engine.backends.fused.kernels.scores import are_near, raise_two
from regard.engine.backends.fused.kernels.tiles import (
    FLAGGED,
    ILL,
    NEVER,
    find_features,
    find_ill,
    find_ill_queries,
    find_rows,
    load_rows,
    mix,
    multiply,
    score_tile,
    store_rows,
)  # fmt: skip
from regard.engine.backends.fused.kernels.weighs import weigh_again


@triton.jit
def attend_forward(
    q, k, v, out, stat, flags, score, weigh, mask, bias, noise, size, d: tl.constexpr, e: tl.constexpr,
    SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, FOLD: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr,
    SPAN: tl.constexpr,
):  # fmt: skip
    """One block of queries. Tiles are (queries, keys) for dot products and (keys, queries) for features.

    `flags` says of each block whether it came out with NaN or infinity, for who is to do it again with care.
    """
    at = tl.program_id(0)
    if HEAL >= FLAGGED:
        # most are not: one look at several
        if find_ill_queries(out, flags, at * SPAN, size, e, ROWS, E, HEAL, SPAN) > 0:
            for t in range(SPAN):
                if find_ill_queries(out, flags, at * SPAN + t, size, e, ROWS, E, HEAL, 1) > 0:
                    _attend_block(
                        at * SPAN + t, q, k, v, out, stat, flags, score, weigh, mask, bias, noise, size, d, e, SCORE,
                        WEIGH, UNIT, FOLD, D, E, ROWS, KEYS, PRECISION, FAST, HEAL,
                    )  # fmt: skip
    else:
        _attend_block(
            at, q, k, v, out, stat, flags, score, weigh, mask, bias, noise, size, d, e, SCORE, WEIGH, UNIT, FOLD, D, E,
            ROWS, KEYS, PRECISION, FAST, HEAL,
        )  # fmt: skip


@triton.jit
def _attend_block(
    number, q, k, v, out, stat, flags, score, weigh, mask, bias, noise, size, d: tl.constexpr, e: tl.constexpr,
    SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, FOLD: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr,
):  # fmt: skip
    """One block."""
    blocks = tl.cdiv(size.n, ROWS)
    block = blocks - 1 - number % blocks
    b = number // blocks // size.heads
    h = number // blocks % size.heads
    start, whole_start, whole_stop, stop = bound_keys(mask, b, block * ROWS, size.n, size.m, ROWS, KEYS)
    TURNS: tl.constexpr = SCORE == "dot" and mask.before is not None
    if SCORE != "dot":
        # features are looked at pair by pair: a body for whole tiles would take long to compile, and save little
        whole_start, whole_stop = start, start
    if HEAL:
        # one kind of tile does: a heal is rare, and a smaller program compiles faster
        whole_stop = whole_start
    behind, end = turn(start, whole_start, whole_stop, stop, KEYS, TURNS)
    AXIS: tl.constexpr = 1 if SCORE == "dot" else 0
    i = block * ROWS + tl.arange(0, ROWS)
    if AXIS == 1:
        i = i[:, None]
        acc = tl.zeros([ROWS, E], tl.float32)
        total = tl.zeros([ROWS, 1], tl.float32)
    else:
        i = i[None, :]
        acc = tl.zeros([E, ROWS], tl.float32)
        total = tl.zeros([1, ROWS], tl.float32)
    peak = total - float("inf")
    # what the sums lost by rounding, in float32
    lost, missed = 0.0, 0.0
    if PRECISION != "tf32":
        lost, missed = acc, total
    row = (b * size.heads + h).to(tl.int64) * size.n + i
    if WEIGH == "softmax":
        if weigh.sink is not None:
            # the sink is a key that was seen before all others
            peak = total + tl.load(weigh.sink + h * weigh.sink_h).to(tl.float32) * UNIT
            total = total + 1.0
    elif stat is not None and WEIGH != "sum":
        peak = tl.load(stat.at + row, mask=i < size.n, other=0.0)
        total = tl.load(stat.at + stat.apart + row, mask=i < size.n, other=0.0)
    query = 0.0
    if SCORE == "dot":
        query = load_rows(q, b, h, block * ROWS, size.n, d, ROWS, D, True)

    if SCORE == "dot" and not HEAL:
        for at in range(whole_start, whole_stop, KEYS):
            acc, peak, total, lost, missed = _absorb(
                acc, peak, total, lost, missed, query, k, v, b, h, i, block * ROWS, at, score, weigh, mask, bias, noise,
                size, d, e, SCORE, WEIGH, UNIT, FOLD, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, False,
            )  # fmt: skip
    for place in range(whole_stop, end, KEYS):
        at = turn_back(place, start, behind, TURNS)
        if mask.bits is not None:
            if meet(mask, b, h, i, at, size.n, size.m, AXIS, KEYS):
                acc, peak, total, lost, missed = _absorb(
                    acc, peak, total, lost, missed, query, k, v, b, h, i, block * ROWS, at, score, weigh, mask, bias,
                    noise, size, d, e, SCORE, WEIGH, UNIT, FOLD, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, True,
                )  # fmt: skip
        else:
            acc, peak, total, lost, missed = _absorb(
                acc, peak, total, lost, missed, query, k, v, b, h, i, block * ROWS, at, score, weigh, mask, bias, noise,
                size, d, e, SCORE, WEIGH, UNIT, FOLD, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, True,
            )  # fmt: skip

    if WEIGH == "softmax" or WEIGH == "sum":
        if WEIGH == "sum":
            # one over a total that is no normal number would overflow: there is nothing to share
            nothing = tl.abs(total) < 1.1754943508222875e-38
        else:
            nothing = total == 0.0
        acc = tl.where(nothing, 0.0, acc / tl.where(nothing, 1.0, total))
        if stat is not None:
            share = tl.where(nothing, 0.0, 1.0 / tl.where(nothing, 1.0, total))
            # a weight is e^−inf = 0 where there is no mass
            peak = tl.where(nothing, float("inf"), peak)
            if HEAL == ILL:
                tl.store(stat.at + row, (peak - tl.log2(share)) * 0.6931471805599453, mask=i < size.n)
            else:
                tl.store(stat.at + row, peak, mask=i < size.n)
                tl.store(stat.at + stat.apart + row, share, mask=i < size.n)
    if AXIS == 0:
        acc = tl.trans(acc)
    store_rows(acc, out, b, h, block * ROWS, size.n, e, ROWS, E)
    if flags is not None and HEAL == NEVER:
        # rows past the last one hold what nobody stores, and columns past the last zeros
        past = block * ROWS + tl.arange(0, ROWS)[:, None] >= size.n
        tl.store(flags + number, find_ill(tl.where(past, 0.0, acc)))


@triton.jit
def _absorb(
    acc, peak, total, lost, missed, query, k, v, b, h, i, first, start, score, weigh, mask, bias, noise, size,
    d: tl.constexpr, e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, FOLD: tl.constexpr,
    D: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr, HEAL: tl.constexpr, CHECK: tl.constexpr,
):  # fmt: skip
    """One more tile of keys; `CHECK` where not all of its pairs meet."""
    AXIS: tl.constexpr = 1 if SCORE == "dot" else 0
    g = h // size.group
    j = start + tl.arange(0, KEYS)
    j = j[None, :] if AXIS == 1 else j[:, None]
    allowed = (i < size.n) & (j < size.m)
    if CHECK:
        allowed = allow(mask, b, h, i, j, size.n, size.m)
    if SCORE == "dot":
        key = tl.trans(load_rows(k, b, g, start, size.m, d, KEYS, D, CHECK))
        if FOLD:
            scores = multiply(query, key, PRECISION)
        else:
            _, scores = score_tile(
                query, key, None, None, b, h, i, j, score, bias, size, d, SCORE, UNIT, ROWS, KEYS, PRECISION, FAST,
                anchor=start,
            )  # fmt: skip
    else:
        queries = find_features(score.queries, b, h, size.heads, size.n, d)
        keys = find_features(score.keys, b, g, size.heads // size.group, size.m, d)
        _, scores = score_tile(
            None, None, queries, keys, b, h, i, j, score, bias, size, d, SCORE, UNIT, KEYS, ROWS, PRECISION, FAST,
            are_near(score, b, h, first, start, size.heads, size.group, size.n, size.m, ROWS, KEYS), start,
        )  # fmt: skip
    if WEIGH == "softmax":
        if CHECK:
            scores = tl.where(allowed, scores, -float("inf"))
        if FOLD:
            risen = tl.maximum(peak, tl.max(scores, AXIS, keep_dims=True) * score.scale)
        else:
            risen = tl.maximum(peak, tl.max(scores, AXIS, keep_dims=True))
        # a row with nothing yet: −inf minus −inf would be NaN where e^−inf = 0 is meant
        base = tl.where(risen == -float("inf"), 0.0, risen)
        if FOLD:
            weights = raise_two(scores * score.scale - base, FAST)
        else:
            weights = raise_two(scores - base, FAST)
        decay = raise_two(peak - base, FAST)
        if PRECISION != "tf32":
            lost, missed = lost * decay, missed * decay
        total, missed = _add(total * decay, missed, tl.sum(weights, AXIS, keep_dims=True), PRECISION)
        acc = acc * decay
        peak = risen
    else:
        weights = weigh_again(scores, j, peak, total, weigh, "sum1" if WEIGH == "sum" else WEIGH, FAST)
        if CHECK:
            weights = tl.where(allowed, weights, 0.0)
            if FAST and AXIS == 0:
                # taken as it is: Triton 3.6 would lay out `allowed` for the product below, and cannot
                weights = tl.gather(weights, tl.arange(0, KEYS)[:, None] + tl.zeros(weights.shape, tl.int32), 0)
        if WEIGH == "sum":
            total, missed = _add(total, missed, tl.sum(weights, AXIS, keep_dims=True), PRECISION)
    if noise.seed is not None:
        weights = weights * keep(noise, b, h, i, j)
    if E == 1:
        value = tl.load(find_rows(v, b, g) + j.to(tl.int64) * v.i, mask=j < size.m, other=0.0).to(tl.float32)
        shares = weights * value
        if HEAL:
            shares = tl.where(allowed, shares, 0.0)
        acc, lost = _add(acc, lost, tl.sum(shares, AXIS, keep_dims=True), PRECISION)
    else:
        value = load_rows(v, b, g, start, size.m, e, KEYS, E, CHECK)
        before = acc if PRECISION == "tf32" else tl.zeros(acc.shape, tl.float32)
        after = mix(before, weights, allowed, value, v, b, g, start, size.m, e, KEYS, E, AXIS, PRECISION, HEAL)
        if PRECISION == "tf32":
            acc = after
        else:
            acc, lost = _add(acc, lost, after, PRECISION)
    return acc, peak, total, lost, missed


@triton.jit
def _add(total, lost, share, PRECISION: tl.constexpr):
    """A sum and what it lost by rounding, which goes into the next one; half precision does not feel it.

    Thousands of tiles added one by one would otherwise lose what a sum by pairs, as in eager code, keeps.
    """
    if PRECISION == "tf32":
        return total + share, lost
    else:
        share -= lost
        risen = total + share
        # infinity less infinity would be NaN
        lost = tl.where(tl.abs(risen) < float("inf"), (risen - total) - share, 0.0)
        return risen, lost
