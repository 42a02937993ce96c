"""Gradients of a bias: each program owns a part of it and meets all pairs that the part was added to."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.pull import pull_tile
from regard.engine.backends.fused.kernels.tiles import load_rows


class Part(NamedTuple):
    """The gradient and how it lies: sizes along sequences, heads, queries and keys, of which some are one."""

    at: Any
    b: Any
    h: Any
    i: Any
    j: Any
    buckets: Any = None  # (n + m − 1,): the bucket of each j − i
    place: Any = None  # where query i stands, for slopes


@triton.jit
def pull_bias(
    q, k, v, grad, stat, means, part, score, weigh, mask, bias, noise, size, sequences, d: tl.constexpr,
    e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    KIND: tl.constexpr, BUCKETS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """`KIND` dense sums tiles as they are; slopes and buckets sum a block of rows to one number, or one for a bucket.

    Blocks of queries (keys) are shared out among programs where the bias has an axis for them; one program loops over
    them where it has not.
    """
    high = tl.where(part.i > 1, tl.cdiv(size.n, ROWS), 1)
    wide = tl.where(part.j > 1, tl.cdiv(size.m, KEYS), 1)
    at = tl.program_id(0)
    column, row, head, sequence = (
        at % wide,
        at // wide % high,
        at // wide // high % part.h,
        at // wide // high // part.h,
    )
    total = tl.zeros([ROWS, KEYS], tl.float32)
    sums = tl.zeros([BUCKETS], tl.float32)
    heads = tl.where(part.h > 1, 1, size.heads)
    down = tl.where(part.i > 1, 1, tl.cdiv(size.n, ROWS))
    across = tl.where(part.j > 1, 1, tl.cdiv(size.m, KEYS))
    # one loop for all: a compiler loads ahead in one, not in four
    for t in range(tl.where(part.b > 1, 1, sequences) * heads * down * across):
        b, h = sequence + t // (across * down * heads), head + t // (across * down) % heads
        block, other = row + t // across % down, column + t % across
        i = block * ROWS + tl.arange(0, ROWS)[:, None]
        j = other * KEYS + tl.arange(0, KEYS)[None, :]
        dscores = _pull(
            q, k, v, grad, stat, means, b, h, i, block * ROWS, other * KEYS, score, weigh, mask, bias, noise, size, d,
            e, SCORE, WEIGH, UNIT, D, E, ROWS, KEYS, PRECISION, FAST,
        )  # fmt: skip
        if KIND == "dense":
            total += dscores
        elif KIND == "slopes":
            total -= dscores * tl.abs(i + part.place - j).to(tl.float32)
        else:
            bucket = tl.load(part.buckets + (j - i + size.n - 1), mask=(i < size.n) & (j < size.m), other=-1)
            least = tl.min(tl.where(bucket < 0, 2147483647, bucket))
            for at_bucket in range(least, tl.max(bucket) + 1):
                share = tl.sum(tl.where(bucket == at_bucket, dscores, 0.0))
                sums += tl.where(tl.arange(0, BUCKETS) == at_bucket, share, 0.0)
    if KIND == "dense":
        i = row * ROWS + tl.arange(0, ROWS)[:, None]
        j = column * KEYS + tl.arange(0, KEYS)[None, :]
        into = part.at + ((sequence * part.h + head).to(tl.int64) * part.i + i) * part.j + j
        if part.i == 1:
            total = tl.where(i == 0, tl.sum(total, 0, keep_dims=True), 0.0)
        if part.j == 1:
            total = tl.where(j == 0, tl.sum(total, 1, keep_dims=True), 0.0)
        tl.store(into, total, mask=(i < part.i) & (j < part.j))
    elif KIND == "slopes":
        tl.store(part.at + head * high + row, tl.sum(total))
    else:
        tl.store(part.at + (head * high + row) * BUCKETS + tl.arange(0, BUCKETS), sums)


@triton.jit
def _pull(
    q, k, v, grad, stat, means, b, h, i, first, start, score, weigh, mask, bias, noise, size, d: tl.constexpr,
    e: tl.constexpr, SCORE: tl.constexpr, WEIGH: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    g = h // size.group
    row = (b * size.heads + h).to(tl.int64) * size.n + i
    one, other, mean = 0.0, 0.0, 0.0
    if stat is not None:
        one = tl.load(stat.at + row, mask=i < size.n, other=float("inf"))
        other = tl.load(stat.at + stat.apart + row, mask=i < size.n, other=0.0)
    if means is not None:
        mean = tl.load(means + row, mask=i < size.n, other=0.0)
    query, key = 0.0, 0.0
    if SCORE == "dot":
        query = load_rows(q, b, h, first, size.n, d, ROWS, D, True)
        key = tl.trans(load_rows(k, b, g, start, size.m, d, KEYS, D, True))
    pulled = load_rows(grad, b, h, first, size.n, e, ROWS, E, True)
    value = tl.trans(load_rows(v, b, g, start, size.m, e, KEYS, E, True))
    _, _, _, _, _, dscores = pull_tile(
        query, key, value, pulled, b, h, i, start, one, other, mean, score, weigh, mask, bias, noise, size, d, SCORE,
        WEIGH, UNIT, E, ROWS, KEYS, 1, PRECISION, FAST, True,
    )  # fmt: skip
    return dscores
