"""Gradients of keys and values, block by block: each program owns its keys and meets all queries of their heads."""

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.masks import bound_queries, meet, turn, turn_back
from regard.engine.backends.fused.kernels.pull import add_features, clear_features, find_ill_features, pull_tile
from regard.engine.backends.fused.kernels.scores import are_near
from regard.engine.backends.fused.kernels.tiles import (
    FLAGGED,
    ILL,
    NEVER,
    find_features,
    find_flagged,
    find_ill,
    find_ill_blocks,
    find_rows,
    load_rows,
    mix,
    store_rows,
)  # fmt: skip
from regard.engine.backends.fused.kernels.weighs import load_stat


@triton.jit
def pull_keys(
    q, k, v, grad, out, stat, means, dk, dv, flags, features, score, weigh, mask, bias, noise, size, d: tl.constexpr,
    e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr,
    HIDES: tl.constexpr, SPAN: tl.constexpr, IS_GROUPED: tl.constexpr,
):  # fmt: skip
    """Tiles are (keys, queries) for dot products and (queries, keys) for features: sums run along the queries."""
    at = tl.program_id(0)
    if HEAL >= FLAGGED:
        # most are not: one look at several
        if _find_ill(at * SPAN, dk, dv, flags, size, d, e, D, E, KEYS, HEAL, SPAN) > 0:
            for t in range(SPAN):
                if _find_ill(at * SPAN + t, dk, dv, flags, size, d, e, D, E, KEYS, HEAL, 1) > 0:
                    _pull_block(
                        at * SPAN + t, q, k, v, grad, out, stat, means, dk, dv, flags, features, score, weigh, mask,
                        bias, noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, HIDES,
                        IS_GROUPED,
                    )  # fmt: skip
    else:
        _pull_block(
            at, q, k, v, grad, out, stat, means, dk, dv, flags, features, score, weigh, mask, bias, noise, size, d, e,
            SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, PRECISION, FAST, HEAL, HIDES, IS_GROUPED,
        )  # fmt: skip


@triton.jit
def _find_ill(
    first, dk, dv, flags, size, d: tl.constexpr, e: tl.constexpr, D: tl.constexpr, E: tl.constexpr, KEYS: tl.constexpr,
    HEAL: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    if HEAL == FLAGGED:
        return find_flagged(flags, first, SPAN)
    else:
        heads = size.heads // size.group
        ill = find_ill_blocks(dk, first, heads, size.m, d, KEYS, D, SPAN, True)
        return ill + find_ill_blocks(dv, first, heads, size.m, e, KEYS, E, SPAN, True)


@triton.jit
def _pull_block(
    number, q, k, v, grad, out, stat, means, dk, dv, flags, features, score, weigh, mask, bias, noise, size,
    d: tl.constexpr, e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr,
    E: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
    HEAL: tl.constexpr, HIDES: tl.constexpr, IS_GROUPED: tl.constexpr,
):  # fmt: skip
    """One block."""
    blocks = tl.cdiv(size.m, KEYS)
    block = number % blocks
    heads = size.heads // size.group
    b = number // blocks // heads
    g = number // blocks % heads
    AXIS: tl.constexpr = 0 if SCORE == "dot" else 1
    start, whole_start, whole_stop, stop = bound_queries(mask, b, block * KEYS, size.n, size.m, KEYS, ROWS)
    own = block * KEYS + tl.arange(0, KEYS)[None, :]
    if SCORE != "dot":
        # features are looked at pair by pair: a body for whole tiles would take long to compile, and save little
        whole_start, whole_stop = start, start
    if HEAL:
        if SCORE != "dot" and HEAL == FLAGGED:
            clear_features(features, b, g, heads, own, size.m, d)
        whole_stop = whole_start
    key, acc = 0.0, 0.0
    if SCORE == "dot":
        key = load_rows(k, b, g, block * KEYS, size.m, d, KEYS, D, True)
        acc = tl.zeros([KEYS, D], tl.float32)
        total = tl.zeros([KEYS, E], tl.float32)
    else:
        total = tl.zeros([E, KEYS], tl.float32)
    if E == 1:
        value = tl.load(find_rows(v, b, g) + own.to(tl.int64) * v.i, mask=own < size.m, other=0.0).to(tl.float32)
    else:
        value = load_rows(v, b, g, block * KEYS, size.m, e, KEYS, E, True)
        if SCORE != "dot":
            value = tl.trans(value)
    if IS_GROUPED:
        for t in range(size.group):
            acc, total = _meet_head(
                acc, total, key, value, q, grad, out, b, g * size.group + t, block * KEYS, start, whole_start,
                whole_stop, stop, stat, means, features, score, weigh, mask, bias, noise, size, d, e, SCORE, WEIGH,
                UNIT, D, E, ROWS, KEYS, AXIS, PRECISION, FAST, HEAL, HIDES,
            )  # fmt: skip
    else:
        # no loop: it would take registers that the tiles need
        acc, total = _meet_head(
            acc, total, key, value, q, grad, out, b, g, block * KEYS, start, whole_start, whole_stop, stop, stat, means,
            features, score, weigh, mask, bias, noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, AXIS,
            PRECISION, FAST, HEAL, HIDES,
        )  # fmt: skip
    if SCORE == "dot":
        store_rows(acc * score.slope, dk, b, g, block * KEYS, size.m, d, KEYS, D)
    else:
        total = tl.trans(total)
    store_rows(total, dv, b, g, block * KEYS, size.m, e, KEYS, E)
    if flags is not None and HEAL == NEVER:
        past = block * KEYS + tl.arange(0, KEYS)[:, None] >= size.m
        ill = find_ill(tl.where(past, 0.0, total))
        if SCORE == "dot":
            ill |= find_ill(tl.where(past, 0.0, acc))
        else:
            tl.debug_barrier()
            ill |= find_ill_features(features, b, g, heads, own, size.m, d)
        tl.store(flags + number, ill)


@triton.jit
def _meet_head(
    acc, total, key, value, q, grad, out, b, h, first, start, whole_start, whole_stop, stop, stat, means, features,
    score, weigh, mask, bias, noise, size, d: tl.constexpr, e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr,
    UNIT: tl.constexpr, D: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, AXIS: tl.constexpr,
    PRECISION: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """All queries of one head."""
    TURNS: tl.constexpr = SCORE == "dot" and mask.after is not None
    behind, end = turn(start, whole_start, whole_stop, stop, ROWS, TURNS)
    if SCORE == "dot" and not HEAL:
        for at in range(whole_start, whole_stop, ROWS):
            acc, total = _gather(
                acc, total, key, value, q, grad, out, b, h, first, at, stat, means, features, score, weigh, mask, bias,
                noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, AXIS, PRECISION, FAST, HEAL, HIDES, False,
            )  # fmt: skip
    for place in range(whole_stop, end, ROWS):
        at = turn_back(place, start, behind, TURNS)
        if mask.bits is not None:
            i = at + tl.arange(0, ROWS)
            i = i[None, :] if AXIS == 0 else i[:, None]
            if meet(mask, b, h, i, first, size.n, size.m, AXIS, KEYS):
                acc, total = _gather(
                    acc, total, key, value, q, grad, out, b, h, first, at, stat, means, features, score, weigh, mask,
                    bias, noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, AXIS, PRECISION, FAST, HEAL, HIDES,
                    True,
                )  # fmt: skip
        else:
            acc, total = _gather(
                acc, total, key, value, q, grad, out, b, h, first, at, stat, means, features, score, weigh, mask, bias,
                noise, size, d, e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, AXIS, PRECISION, FAST, HEAL, HIDES, True,
            )  # fmt: skip
    return acc, total


@triton.jit
def _gather(
    acc, total, key, value, q, grad, out, b, h, first, start, stat, means, features, score, weigh, mask, bias, noise,
    size, d: tl.constexpr, e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr,
    D: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, AXIS: tl.constexpr,
    PRECISION: tl.constexpr, FAST: tl.constexpr, HEAL: tl.constexpr, HIDES: tl.constexpr, CHECK: tl.constexpr,
):  # fmt: skip
    """One more tile of queries."""
    i = start + tl.arange(0, ROWS)
    i = i[None, :] if AXIS == 0 else i[:, None]
    row = (b * size.heads + h).to(tl.int64) * size.n + i
    one, other, mean = 0.0, 0.0, 0.0
    if stat is not None:
        one, other = load_stat(stat, row, i, size.n, HEAL == ILL)
    if means is not None:
        mean = tl.load(means + row, mask=i < size.n, other=0.0)
    query, right = 0.0, 0.0
    if SCORE == "dot":
        query = load_rows(q, b, h, start, size.n, d, ROWS, D, CHECK)
        right = tl.trans(query)
    if E == 1:
        pulled = tl.load(find_rows(grad, b, h) + i.to(tl.int64) * grad.i, mask=i < size.n, other=0.0).to(tl.float32)
        turned = pulled
    else:
        pulled = load_rows(grad, b, h, start, size.n, e, ROWS, E, CHECK)
        turned = tl.trans(pulled) if AXIS == 0 else pulled
        if out is not None:
            mine = load_rows(out, b, h, start, size.n, e, ROWS, E, CHECK).to(tl.float32)
            mean = tl.sum(mine * pulled.to(tl.float32), 1)[None, :]
    near = are_near(score, b, h, start, first, size.heads, size.group, size.n, size.m, ROWS, KEYS)
    allowed, _, weights, _, dscores, _ = pull_tile(
        right, key, value, turned, b, h, i, first, one, other, mean, score, weigh, mask, bias, noise, size, d, SCORE,
        WEIGH, UNIT, E, ROWS, KEYS, AXIS, PRECISION, FAST, CHECK, near,
    )  # fmt: skip
    if E == 1:
        share = weights * pulled
        if HEAL:
            share = tl.where(allowed, share, 0.0)
        total += tl.sum(share, 0, keep_dims=True)
    else:
        total = mix(total, weights, allowed, pulled, grad, b, h, start, size.n, e, ROWS, E, 1 - AXIS, PRECISION, HEAL)
    if SCORE == "dot":
        acc = mix(acc, dscores, allowed, query, q, b, h, start, size.n, d, ROWS, D, 1, PRECISION, HEAL)
    else:
        g, heads = h // size.group, size.heads // size.group
        j = first + tl.arange(0, KEYS)[None, :]
        queries = find_features(score.queries, b, h, size.heads, size.n, d)
        keys = find_features(score.keys, b, g, heads, size.m, d)
        add_features(
            features, dscores, allowed, queries, keys, b, h, g, heads, j, i, j, size.m, size, score, d, SCORE, FAST,
            HIDES, False, near,
        )  # fmt: skip
    return acc, total
