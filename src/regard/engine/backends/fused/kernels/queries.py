"""Gradients of the queries, block by block: each program owns its rows, so that sums come out the same every time."""

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.masks import bound_keys, meet, turn, turn_back
from regard.engine.backends.fused.kernels.pull import add_features, clear_features, find_ill_features, pull_tile
from regard.engine.backends.fused.kernels.scores import are_near
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
    store_rows,
)  # fmt: skip
from regard.engine.backends.fused.kernels.weighs import lean, load_stat, weigh_again


@triton.jit
def take_means(out, grad, means, size, e: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr):
    """Σ_j weight·(gradient of the weight), which is output · its gradient, for each row."""
    blocks = tl.cdiv(size.n, ROWS)
    block = tl.program_id(0) % blocks
    b = tl.program_id(0) // blocks // size.heads
    h = tl.program_id(0) // blocks % size.heads
    one = load_rows(out, b, h, block * ROWS, size.n, e, ROWS, E, True).to(tl.float32)
    other = load_rows(grad, b, h, block * ROWS, size.n, e, ROWS, E, True).to(tl.float32)
    i = block * ROWS + tl.arange(0, ROWS)
    tl.store(means + (b * size.heads + h).to(tl.int64) * size.n + i, tl.sum(one * other, 1), mask=i < size.n)


@triton.jit
def pull_queries(
    q, k, v, grad, out, stat, means, dq, flags, features, score, weigh, mask, bias, noise, size, d: tl.constexpr,
    e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr,
    OWN: tl.constexpr, HIDES: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Tiles lie as in the forward kernel. Rows that take their `OWN` mean of the gradient leave it in `means`.

    Under a mask that `HIDES` sums leave out what does not meet, with care or not: the same bits whatever lies there.
    """
    at = tl.program_id(0)
    if HEAL >= FLAGGED:
        # most are not: one look at several
        if find_ill_queries(dq, flags, at * SPAN, size, d, ROWS, D, HEAL, SPAN) > 0:
            for t in range(SPAN):
                if find_ill_queries(dq, flags, at * SPAN + t, size, d, ROWS, D, HEAL, 1) > 0:
                    _pull_block(
                        at * SPAN + t, q, k, v, grad, out, stat, means, dq, flags, features, score, weigh, mask, bias,
                        noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, OWN, HIDES,
                    )  # fmt: skip
    else:
        _pull_block(
            at, q, k, v, grad, out, stat, means, dq, flags, features, score, weigh, mask, bias, noise, size, d, e,
            SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, OWN, HIDES,
        )  # fmt: skip


@triton.jit
def _pull_block(
    number, q, k, v, grad, out, stat, means, dq, flags, features, score, weigh, mask, bias, noise, size,
    d: tl.constexpr, e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr,
    E: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
    HEAL: tl.constexpr, OWN: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """One block."""
    blocks = tl.cdiv(size.n, ROWS)
    block = blocks - 1 - number % blocks
    b = number // blocks // size.heads
    h = number // blocks % size.heads
    g = h // size.group
    start, whole_start, whole_stop, stop = bound_keys(mask, b, block * ROWS, size.n, size.m, ROWS, KEYS)
    AXIS: tl.constexpr = 1 if SCORE == "dot" else 0
    i = block * ROWS + tl.arange(0, ROWS)
    i = i[:, None] if AXIS == 1 else i[None, :]
    TURNS: tl.constexpr = SCORE == "dot" and mask.before is not None
    if SCORE != "dot":
        # features are looked at pair by pair: a body for whole tiles would take long to compile, and save little
        whole_start, whole_stop = start, start
    if HEAL:
        if SCORE != "dot" and HEAL == FLAGGED:
            clear_features(features, b, h, size.heads, i, size.n, d)
        whole_stop = whole_start
    behind, end = turn(start, whole_start, whole_stop, stop, KEYS, TURNS)
    row = (b * size.heads + h).to(tl.int64) * size.n + i
    one, other, mean = 0.0, 0.0, 0.0
    if stat is not None:
        one, other = load_stat(stat, row, i, size.n, HEAL == ILL)
    query, acc = 0.0, 0.0
    if SCORE == "dot":
        query = load_rows(q, b, h, block * ROWS, size.n, d, ROWS, D, True)
        acc = tl.zeros([ROWS, D], tl.float32)
    if E == 1:
        pulled = tl.load(find_rows(grad, b, h) + i.to(tl.int64) * grad.i, mask=i < size.n, other=0.0).to(tl.float32)
    else:
        pulled = load_rows(grad, b, h, block * ROWS, size.n, e, ROWS, E, True)
        if AXIS == 0:
            pulled = tl.trans(pulled)

    if OWN:
        top = tl.zeros([ROWS, 1], tl.float32) if AXIS == 1 else tl.zeros([1, ROWS], tl.float32)
        bottom = top
        for at in range(start, stop, KEYS):
            near = are_near(score, b, h, block * ROWS, at, size.heads, size.group, size.n, size.m, ROWS, KEYS)
            key, value = _load(k, v, b, g, at, size, d, e, SCORE, D, E, KEYS, True)
            allowed, scores, _, dweights, _, _ = pull_tile(
                query, tl.trans(key) if SCORE == "dot" else None, value, pulled, b, h, i, at, one, other, 0.0, score,
                weigh, mask, bias, noise, size, d, SCORE, WEIGH, UNIT, E, ROWS, KEYS, AXIS, PRECISION, FAST, True, near,
            )  # fmt: skip
            if WEIGH == "softmax" or WEIGH == "sum":
                share = weigh_again(scores, i, one, other, weigh, WEIGH, FAST)
            else:
                share = lean(scores, one, other, weigh, WEIGH)
            share = tl.where(allowed, share, 0.0)
            top += tl.sum(tl.where(allowed, share * dweights, 0.0), AXIS, keep_dims=True)
            bottom += tl.sum(share, AXIS, keep_dims=True)
        mean = top
        if WEIGH != "softmax" and WEIGH != "sum":
            mean = top / tl.where(bottom > 0, bottom, 1.0)
        if HEAL != FLAGGED:
            tl.store(means + row, mean, mask=i < size.n)
    elif means is not None:
        mean = tl.load(means + row, mask=i < size.n, other=0.0)
    elif out is not None:
        mine = load_rows(out, b, h, block * ROWS, size.n, e, ROWS, E, True).to(tl.float32)
        mean = tl.sum(mine * pulled.to(tl.float32), 1, keep_dims=True)

    if SCORE == "dot" and not HEAL:
        for at in range(whole_start, whole_stop, KEYS):
            acc = _gather(
                acc, query, pulled, k, v, b, h, i, block * ROWS, at, one, other, mean, features, score, weigh, mask,
                bias, noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, HIDES, False,
            )  # fmt: skip
    for place in range(whole_stop, end, KEYS):
        at = turn_back(place, start, behind, TURNS)
        if mask.bits is not None:
            if meet(mask, b, h, i, at, size.n, size.m, AXIS, KEYS):
                acc = _gather(
                    acc, query, pulled, k, v, b, h, i, block * ROWS, at, one, other, mean, features, score, weigh, mask,
                    bias, noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, HIDES, True,
                )  # fmt: skip
        else:
            acc = _gather(
                acc, query, pulled, k, v, b, h, i, block * ROWS, at, one, other, mean, features, score, weigh, mask,
                bias, noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, HIDES, True,
            )  # fmt: skip
    if SCORE == "dot":
        store_rows(acc * score.slope, dq, b, h, block * ROWS, size.n, d, ROWS, D)
        if flags is not None and HEAL == NEVER:
            tl.store(flags + number, find_ill(tl.where(i >= size.n, 0.0, acc)))
    elif flags is not None and HEAL == NEVER:
        tl.debug_barrier()
        tl.store(flags + number, find_ill_features(features, b, h, size.heads, i, size.n, d))


@triton.jit
def _load(
    k, v, b, g, start, size, d: tl.constexpr, e: tl.constexpr, SCORE: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    KEYS: tl.constexpr, CHECK: tl.constexpr,
):  # fmt: skip
    key = 0.0
    if SCORE == "dot":
        key = load_rows(k, b, g, start, size.m, d, KEYS, D, CHECK)
    if E == 1:
        j = start + tl.arange(0, KEYS)[:, None]
        value = tl.load(find_rows(v, b, g) + j.to(tl.int64) * v.i, mask=j < size.m, other=0.0).to(tl.float32)
    else:
        value = load_rows(v, b, g, start, size.m, e, KEYS, E, CHECK)
        if SCORE == "dot":
            value = tl.trans(value)
    return key, value


@triton.jit
def _gather(
    acc, query, pulled, k, v, b, h, i, first, start, one, other, mean, features, score, weigh, mask, bias, noise, size,
    d: tl.constexpr, e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr,
    E: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
    HEAL: tl.constexpr, HIDES: tl.constexpr, CHECK: tl.constexpr,
):  # fmt: skip
    """One more tile of keys."""
    AXIS: tl.constexpr = 1 if SCORE == "dot" else 0
    g = h // size.group
    near = are_near(score, b, h, first, start, size.heads, size.group, size.n, size.m, ROWS, KEYS)
    key, value = _load(k, v, b, g, start, size, d, e, SCORE, D, E, KEYS, CHECK)
    allowed, _, _, _, dscores, _ = pull_tile(
        query, tl.trans(key) if SCORE == "dot" else None, value, pulled, b, h, i, start, one, other, mean, score, weigh,
        mask, bias, noise, size, d, SCORE, WEIGH, UNIT, E, ROWS, KEYS, AXIS, PRECISION, FAST, CHECK, near,
    )  # fmt: skip
    if SCORE == "dot":
        acc = mix(acc, dscores, allowed, key, k, b, g, start, size.m, d, KEYS, D, 1, PRECISION, HEAL)
    else:
        j = start + tl.arange(0, KEYS)[:, None]
        queries = find_features(score.queries, b, h, size.heads, size.n, d)
        keys = find_features(score.keys, b, g, size.heads // size.group, size.m, d)
        add_features(
            features, dscores, allowed, queries, keys, b, h, h, size.heads, i, i, j, size.n, size, score, d, SCORE,
            FAST, HIDES, True, near,
        )  # fmt: skip
    return acc
