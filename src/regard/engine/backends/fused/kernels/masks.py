"""Masks as fragments: which pairs may attend, and which blocks are skipped, or need no mask."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Mask(NamedTuple):
    """All masks of a call, joined by and; what is None is not there."""

    places: Any = None  # (b,): query i stands at key i + place; at key i where there is none
    before: Any = None
    after: Any = None
    lengths: Any = None  # (b, 1 or n)
    lengths_b: Any = None
    lengths_i: Any = None
    query_ids: Any = None  # (1 or b, n) documents
    query_ids_b: Any = None
    key_ids: Any = None
    key_ids_b: Any = None
    first: Any = None  # (1 or b, n): first and one past last key of a query's document
    last: Any = None
    top: Any = None  # (1 or b, m): first and one past last query of a key's document
    bottom: Any = None
    ends_b: Any = None
    heads_b: Any = None
    width: Any = None  # a grid
    rows: Any = None
    columns: Any = None
    bits: Any = None  # (1 or b, 1 or h, n, words) any other mask, 32 keys a word
    bits_b: Any = None
    bits_h: Any = None
    words: Any = None


@triton.jit
def allow(mask, b, h, i, j, n, m):
    """The rule on a tile, whichever way around it lies: i and j broadcast against each other."""
    allowed = (i < n) & (j < m)
    if mask.after is not None:
        ahead = j - i - _place(mask, b)
        allowed = allowed & (ahead <= mask.after)
        if mask.before is not None:
            allowed = allowed & (ahead >= -mask.before)
    if mask.lengths is not None:
        allowed = allowed & (j < _lengths(mask, b, i, n, 0))
    if mask.query_ids is not None:
        mine = tl.load(mask.query_ids + b * mask.query_ids_b + i, mask=i < n, other=0)
        theirs = tl.load(mask.key_ids + b * mask.key_ids_b + j, mask=j < m, other=0)
        allowed = allowed & (mine == theirs)
    if mask.width is not None:
        down = i // mask.width - j // mask.width
        right = i % mask.width - j % mask.width
        allowed = allowed & (tl.abs(down) <= mask.rows) & (tl.abs(right) <= mask.columns)
    if mask.bits is not None:
        row = mask.bits + b.to(tl.int64) * mask.bits_b + h.to(tl.int64) * mask.bits_h
        word = tl.load(row + i.to(tl.int64) * mask.words + j // 32, mask=(i < n) & (j < m), other=0)
        allowed = allowed & (((word >> (j % 32)) & 1) != 0)
    return allowed


@triton.jit
def meet(mask, b, h, i, start, n, m, AXIS: tl.constexpr, COUNT: tl.constexpr):
    """Whether any pair of a tile is allowed: rows i, and keys from `start`, which lie along `AXIS`."""
    j = start + tl.arange(0, COUNT)
    j = j[None, :] if AXIS == 1 else j[:, None]
    return tl.max(tl.where(allow(mask, b, h, i, j, n, m), 1, 0)) > 0


@triton.jit
def _place(mask, b):
    if mask.places is not None:
        return tl.load(mask.places + b)
    else:
        return 0


@triton.jit
def _lengths(mask, b, i, n, OTHER: tl.constexpr):
    """How many keys each row has, and `OTHER` for what lies past the last row."""
    if mask.lengths_i is not None:
        return tl.load(mask.lengths + b * mask.lengths_b + i * mask.lengths_i, mask=i < n, other=OTHER)
    else:
        return tl.where(i < n, tl.load(mask.lengths + b * mask.lengths_b), OTHER)


@triton.jit
def bound_keys(mask, b, i0, n, m, ROWS: tl.constexpr, STEP: tl.constexpr):
    """Keys that rows i0… may meet, in steps: start, where all rows meet all keys from and to, and stop."""
    i1 = tl.minimum(i0 + ROWS, n)
    start, stop = 0, m
    whole_start, whole_stop = 0, m
    if mask.after is not None:
        place = _place(mask, b)
        stop = tl.minimum(stop, i1 + place + mask.after)
        whole_stop = tl.minimum(whole_stop, i0 + place + mask.after + 1)
        if mask.before is not None:
            start = tl.maximum(start, i0 + place - mask.before)
            whole_start = tl.maximum(whole_start, i1 - 1 + place - mask.before)
    if mask.lengths is not None:
        i = i0 + tl.arange(0, ROWS)
        stop = tl.minimum(stop, tl.max(_lengths(mask, b, i, n, 0)))
        whole_stop = tl.minimum(whole_stop, tl.min(_lengths(mask, b, i, n, 2147483647)))
    if mask.query_ids is not None:
        i = i0 + tl.arange(0, ROWS)
        start = tl.maximum(start, tl.min(tl.load(mask.first + b * mask.ends_b + i, mask=i < n, other=2147483647)))
        stop = tl.minimum(stop, tl.max(tl.load(mask.last + b * mask.ends_b + i, mask=i < n, other=0)))
    if mask.width is not None:
        reach = mask.rows * mask.width + mask.columns
        start = tl.maximum(start, i0 - reach)
        stop = tl.minimum(stop, i1 + reach)
    return _steps(mask, start, whole_start, whole_stop, stop, STEP)


@triton.jit
def bound_queries(mask, b, j0, n, m, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """Queries that keys j0… may meet: as `bound_keys`, the other way around."""
    j1 = tl.minimum(j0 + COLUMNS, m)
    start, stop = 0, n
    whole_start, whole_stop = 0, n
    if mask.after is not None:
        place = _place(mask, b)
        start = tl.maximum(start, j0 - place - mask.after)
        whole_start = tl.maximum(whole_start, j1 - 1 - place - mask.after)
        if mask.before is not None:
            stop = tl.minimum(stop, j1 - place + mask.before)
            whole_stop = tl.minimum(whole_stop, j0 - place + mask.before + 1)
    if mask.lengths is not None:
        # one length for the sequence tells; one for each query does not
        if mask.lengths_i is not None:
            whole_stop = 0
        else:
            length = tl.load(mask.lengths + b * mask.lengths_b)
            stop = tl.where(length > j0, stop, 0)
            whole_stop = tl.where(length >= j1, whole_stop, 0)
    if mask.query_ids is not None:
        j = j0 + tl.arange(0, COLUMNS)
        start = tl.maximum(start, tl.min(tl.load(mask.top + b * mask.heads_b + j, mask=j < m, other=2147483647)))
        stop = tl.minimum(stop, tl.max(tl.load(mask.bottom + b * mask.heads_b + j, mask=j < m, other=0)))
    if mask.width is not None:
        reach = mask.rows * mask.width + mask.columns
        start = tl.maximum(start, j0 - reach)
        stop = tl.minimum(stop, j1 + reach)
    # keys past the last one are never met
    whole_stop = tl.where(j0 + COLUMNS <= m, whole_stop, 0)
    return _steps(mask, start, whole_start, whole_stop, stop, STEP)


@triton.jit
def _steps(mask, start, whole_start, whole_stop, stop, STEP: tl.constexpr):
    """Ends moved to multiples of the step: tiles before and after the whole ones are looked at pair by pair."""
    start = tl.maximum(start, 0) // STEP * STEP
    if mask.query_ids is not None or mask.width is not None or mask.bits is not None:
        whole_start, whole_stop = start, start
    else:
        whole_start = tl.maximum(tl.cdiv(tl.maximum(whole_start, 0), STEP) * STEP, start)
        whole_stop = tl.maximum(tl.maximum(whole_stop, 0) // STEP * STEP, whole_start)
    return start, whole_start, whole_stop, stop


@triton.jit
def turn(start, whole_start, whole_stop, stop, STEP: tl.constexpr, IS_TURNED: tl.constexpr):
    """From where, and to where, tiles before the whole ones are counted: behind all others, where it is turned.

    So one loop does both edges; two would have two bodies to compile.
    """
    if IS_TURNED:
        behind = whole_stop + tl.cdiv(tl.maximum(stop - whole_stop, 0), STEP) * STEP
        return behind, behind + tl.minimum(whole_start, stop) - start
    else:
        return stop, stop


@triton.jit
def turn_back(at, start, behind, IS_TURNED: tl.constexpr):
    """Where a tile lies that is counted so."""
    if IS_TURNED:
        return tl.where(at < behind, at, at - behind + start)
    else:
        return at
