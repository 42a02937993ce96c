"""What all kernels do with a tile: load rows, make its scores, and multiply it with rows."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.biases import add_bias
from regard.engine.backends.fused.kernels.scores import scale_dot, sum_features

# which blocks a kernel does with care, so that nothing comes through a mask: none, all, those that it flagged the first
# time, and those that cuDNN made ill
NEVER: tl.constexpr = tl.constexpr(0)
ALWAYS: tl.constexpr = tl.constexpr(1)
FLAGGED: tl.constexpr = tl.constexpr(2)
ILL: tl.constexpr = tl.constexpr(3)
# rows that a matrix unit takes at a time: what comes through a mask comes to all of them
UNIT_ROWS: tl.constexpr = tl.constexpr(16)


class Rows(NamedTuple):
    """A (b, heads, positions, width) tensor: where it lies, and its strides."""

    at: Any
    b: Any
    h: Any
    i: Any
    d: Any


class Size(NamedTuple):
    """How many query heads, query heads to a key head, queries and keys."""

    heads: Any
    group: Any
    n: Any
    m: Any


@triton.jit
def find_rows(rows, b, h):
    """Where the rows of one sequence and head begin; in 64 bits, as all that grows with the number of positions."""
    return rows.at + b.to(tl.int64) * rows.b + h.to(tl.int64) * rows.h


@triton.jit
def load_rows(
    rows, b, h, start, count, width: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr, CHECK: tl.constexpr
):
    """A (COUNT, WIDTH) block; zeros past the last row and column."""
    i = tl.arange(0, COUNT)[:, None]
    d = tl.arange(0, WIDTH)[None, :]
    at = find_rows(rows, b, h) + (start + i).to(tl.int64) * rows.i + d * rows.d
    if CHECK:
        if width == WIDTH:
            return tl.load(at, mask=start + i < count, other=0.0)
        else:
            return tl.load(at, mask=(start + i < count) & (d < width), other=0.0)
    else:
        if width == WIDTH:
            return tl.load(at)
        else:
            return tl.load(at, mask=d < width, other=0.0)


@triton.jit
def store_rows(block, rows, b, h, start, count, width: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.arange(0, COUNT)[:, None]
    d = tl.arange(0, WIDTH)[None, :]
    at = find_rows(rows, b, h) + (start + i).to(tl.int64) * rows.i + d * rows.d
    tl.store(at, block.to(rows.at.dtype.element_ty), mask=(start + i < count) & (d < width))


@triton.jit
def find_ill(block):
    """One where a number of a block is NaN or infinite, else zero."""
    return tl.max(tl.where(tl.abs(block.to(tl.float32)) < float("inf"), 0, 1))


@triton.jit
def find_flagged(flags, first, SPAN: tl.constexpr):
    """One where one of `SPAN` blocks was flagged, else zero."""
    return tl.max(tl.load(flags + first + tl.arange(0, SPAN)))


@triton.jit
def find_ill_blocks(
    rows, first, heads, count, width: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr,
    IS_CAUSE: tl.constexpr,
):  # fmt: skip
    """The same of `SPAN` blocks as cuDNN made them, by the row of each unit that sees least: what it shows, all show.

    That is the first of queries, whose blocks are counted from the last one, and the last of keys (`IS_CAUSE`).
    """
    UNITS: tl.constexpr = COUNT // UNIT_ROWS
    blocks = tl.cdiv(count, COUNT)
    t = tl.arange(0, SPAN * UNITS)[:, None]
    at = first + t // UNITS
    if IS_CAUSE:
        i = at % blocks * COUNT + t % UNITS * UNIT_ROWS + UNIT_ROWS - 1
    else:
        i = (blocks - 1 - at % blocks) * COUNT + t % UNITS * UNIT_ROWS
    i = tl.minimum(i, count - 1)
    d = tl.arange(0, WIDTH)[None, :]
    group = at // blocks
    begin = (group // heads).to(tl.int64) * rows.b + (group % heads).to(tl.int64) * rows.h
    where = rows.at + begin + i.to(tl.int64) * rows.i + d * rows.d
    return find_ill(tl.load(where, mask=d < width, other=0.0))


@triton.jit
def find_ill_queries(
    rows, flags, first, size, width: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr, HEAL: tl.constexpr,
    SPAN: tl.constexpr,
):  # fmt: skip
    """One where one of `SPAN` blocks of queries is to be done again, else zero."""
    if HEAL == FLAGGED:
        return find_flagged(flags, first, SPAN)
    else:
        return find_ill_blocks(rows, first, size.heads, size.n, width, COUNT, WIDTH, SPAN, False)


@triton.jit
def find_features(features, b, h, heads, count, d: tl.constexpr):
    """Where the features of one sequence and head begin; they come in fours."""
    return features + (b * heads + h).to(tl.int64) * ((d + 3) // 4 * 4) * count


@triton.jit
def multiply(one, other, PRECISION: tl.constexpr):
    if PRECISION == "ieee":
        # nothing to do for float32; but Triton's interpreter cannot multiply bfloat16
        one, other = one.to(tl.float32), other.to(tl.float32)
    return tl.dot(one, other, input_precision=PRECISION)


@triton.jit
def score_tile(
    q, k, queries, keys, b, h, i, j, score, bias, size, d: tl.constexpr, SCORE: tl.constexpr, UNIT: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr, near=False, anchor=None,
):  # fmt: skip
    """Scores without bias and with it. A dot product multiplies q with k as they come; features load what they need."""
    if SCORE == "dot":
        plain = scale_dot(multiply(q, k, PRECISION), score, UNIT, PRECISION, FAST)
    else:
        plain = sum_features(score, queries, keys, h, i, j, size.n, size.m, d, SCORE, UNIT, FAST, TALL, WIDE, near)
    return plain, add_bias(plain, bias, b, h, i, j, size.n, size.m, UNIT, anchor)


@triton.jit
def mix(
    acc, weights, allowed, block, rows, b, h, start, count, width: tl.constexpr, COUNT: tl.constexpr,
    WIDTH: tl.constexpr, AXIS: tl.constexpr, PRECISION: tl.constexpr, HEAL: tl.constexpr,
):  # fmt: skip
    """`acc` plus the block's rows weighted and summed along `AXIS` of the weights.

    To heal is to let a NaN or an infinity reach those alone that may see it: the product leaves them out, and they are
    added key by key.
    """
    clean = block
    # the largest float32 are infinity to tensor cores
    LARGE: tl.constexpr = 3.4e38 if PRECISION == "tf32x3" else float("inf")
    if HEAL:
        clean = tl.where(tl.abs(block.to(tl.float32)) < LARGE, block, 0.0).to(block.dtype)
    shares = weights.to(block.dtype)
    if PRECISION == "ieee":
        clean, shares = clean.to(tl.float32), shares.to(tl.float32)
    if AXIS == 1:
        acc = tl.dot(shares, clean, acc, input_precision=PRECISION)
    else:
        acc = tl.dot(tl.trans(clean), shares, acc, input_precision=PRECISION)
    if HEAL:
        if tl.max(tl.where(tl.abs(block.to(tl.float32)) < LARGE, 0, 1)) > 0:
            place = tl.arange(0, COUNT)
            place = place[None, :] if AXIS == 1 else place[:, None]
            d = tl.arange(0, WIDTH)
            d = d[None, :] if AXIS == 1 else d[:, None]
            for t in range(COUNT):
                i = start + t + 0 * d
                at = find_rows(rows, b, h) + i.to(tl.int64) * rows.i + d * rows.d
                row = tl.load(at, mask=(i < count) & (d < width), other=0.0).to(tl.float32)
                weight = tl.sum(tl.where(place == t, weights, 0.0), AXIS, keep_dims=True)
                seen = tl.sum(tl.where((place == t) & allowed, 1, 0), AXIS, keep_dims=True) > 0
                acc += tl.where(seen & ((tl.abs(row) >= LARGE) | (row != row)), weight * row, 0.0)
    return acc
