"""A look at the keys of a softmax, second pass: what they were given, and which of them each row scores highest."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.look import lift, score_keys
from regard.engine.backends.fused.kernels.masks import allow, bound_keys
from regard.engine.backends.fused.kernels.tiles import find_rows


class Part(NamedTuple):
    """Which blocks of rows a launch has, and how they lie in the lines of the map.

    A block has `ROWS` places for rows, in pieces of `TALL`. All rows of a piece are in one line of the map; the last
    piece of a line has places without a row.
    """

    head: Any  # the first, of those of all sequences
    heads: Any
    block: Any  # the first, of those of a head
    blocks: Any
    pieces: Any  # of a line
    line: Any  # rows of a line


class Lists(NamedTuple):
    """The best keys of each row of a launch: groups of keys, and keys one by one."""

    groups: (
        Any  # (rows, SLOTS) int32: number and members of groups that pass the bar, `ROOM` at most; then that touch it
    )
    sums: Any  # (rows, 2) int32: how many groups passed and touched, those without room counted, too
    keys: Any  # (rows, SLOTS) int32
    counts: Any  # (rows,) int32: how many keys there are; more than SLOTS where some are missing


@triton.jit
def gather_keys(
    q, k, found, given, wide, lists, part, score, mask, bias, size, place, window, d: tl.constexpr, UNIT: tl.constexpr,
    FOLD: tl.constexpr, ROOM: tl.constexpr, SLOTS: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
    TALL: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """One block of queries: the sums of the weights of each of its pieces for each key, `given` (pieces, wide)."""
    # the last rows first, of all heads: under a causal mask they have the most to do
    own = part.blocks - 1 - tl.program_id(0) // part.heads
    head = part.head + tl.program_id(0) % part.heads
    b, h = head // size.heads, head % size.heads
    first, _ = find_query(part, own, 0, size, ROWS, TALL)
    _, last = find_query(part, own, ROWS - 1, size, ROWS, TALL)
    i, after = find_query(part, own, tl.arange(0, ROWS)[:, None], size, ROWS, TALL)
    own += tl.program_id(0) % part.heads * part.blocks
    if first >= last:
        return
    start, whole_start, whole_stop, stop = bound_keys(mask, b, first, last, size.m, ROWS, KEYS)
    here = i < after
    # a place without a row has a neighbour's query: of zeros, what is infinite would make NaN
    x = tl.arange(0, D)[None, :]
    query = tl.load(find_rows(q, b, h) + tl.minimum(i, after - 1).to(tl.int64) * q.i + x * q.d, mask=x < d, other=0.0)
    i = tl.where(here, i, size.n)
    row = head.to(tl.int64) * size.n + i
    base = tl.load(found.base + row, mask=here, other=float("inf"))
    share = tl.load(found.share + row, mask=here, other=0.0)
    bar = base
    if ROOM > 0:
        # −inf is no score: what is masked stays below
        bar = tl.maximum(tl.load(found.bar + row, mask=here, other=float("inf")), -3.4028234663852886e38)
    given += own.to(tl.int64) * (ROWS // TALL) * wide
    own = own * ROWS + tl.arange(0, ROWS)[:, None]
    passed = tl.zeros([ROWS, 1], tl.int32)
    touched = passed
    if mask.before is not None:
        for at in range(start, tl.minimum(whole_start, stop), KEYS):
            passed, touched = _give(
                passed, touched, given, wide, lists, own, bar, base, share, query, k, b, h, i, last, at, score, mask,
                bias, size, d, UNIT, FOLD, ROOM, SLOTS, D, ROWS, TALL, KEYS, PRECISION, FAST, True,
            )  # fmt: skip
    for at in range(whole_start, whole_stop, KEYS):
        passed, touched = _give(
            passed, touched, given, wide, lists, own, bar, base, share, query, k, b, h, i, last, at, score, mask, bias,
            size, d, UNIT, FOLD, ROOM, SLOTS, D, ROWS, TALL, KEYS, PRECISION, FAST, False,
        )  # fmt: skip
    for at in range(whole_stop, stop, KEYS):
        passed, touched = _give(
            passed, touched, given, wide, lists, own, bar, base, share, query, k, b, h, i, last, at, score, mask, bias,
            size, d, UNIT, FOLD, ROOM, SLOTS, D, ROWS, TALL, KEYS, PRECISION, FAST, True,
        )  # fmt: skip

    if ROOM > 0:
        tl.store(lists.sums + own * 2, passed)
        tl.store(lists.sums + own * 2 + 1, touched)

    # the few tiles around the diagonal, and the first, once more
    local = tl.zeros([ROWS, 1], tl.float32)
    low = tl.maximum(tl.minimum(first + place - window, size.m), 0) // KEYS * KEYS
    for at in range(tl.maximum(low, start), tl.minimum(last + place + window, stop), KEYS):
        j = at + tl.arange(0, KEYS)[None, :]
        weights = _weigh(
            base, share, query, k, b, h, i, j, last, score, mask, bias, size, d, UNIT, FOLD, D, ROWS, KEYS,
            PRECISION, FAST,
        )  # fmt: skip
        local += tl.sum(tl.where(tl.abs(i + place - j) <= window, weights, 0.0), 1, keep_dims=True)
    tl.store(found.local + row, local, mask=here)
    alone = tl.zeros([ROWS, 1], tl.float32)
    for at in range(start, tl.minimum(stop, 1), KEYS):
        j = at + tl.arange(0, KEYS)[None, :]
        weights = _weigh(
            base, share, query, k, b, h, i, j, last, score, mask, bias, size, d, UNIT, FOLD, D, ROWS, KEYS,
            PRECISION, FAST,
        )  # fmt: skip
        alone += tl.sum(tl.where(j == 0, weights, 0.0), 1, keep_dims=True)
    tl.store(found.first + row, alone, mask=here)


@triton.jit
def find_query(part, index, place, size, ROWS: tl.constexpr, TALL: tl.constexpr):
    """The query that has a place of a block, and one past the last of its piece: those from there on are no rows."""
    piece = (part.block + index) * (ROWS // TALL) + place // TALL
    line = piece // part.pieces
    first = line * part.line + piece % part.pieces * TALL
    return first + place % TALL, tl.minimum(tl.minimum(first + TALL, (line + 1) * part.line), size.n)


@triton.jit
def _weigh(
    base, share, query, k, b, h, i, j, last, score, mask, bias, size, d: tl.constexpr, UNIT: tl.constexpr,
    FOLD: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """The weights of a tile of which no more is known."""
    scores = score_keys(query, k, b, h, i, j, score, bias, size, d, UNIT, FOLD, D, ROWS, KEYS, PRECISION, FAST, True)
    weights = tl.exp2(lift(scores, score, base, FOLD)) * share
    return tl.where(allow(mask, b, h, i, j, last, size.m), weights, 0.0)


@triton.jit
def _give(
    passed, touched, given, wide, lists, own, bar, base, share, query, k, b, h, i, last, start, score, mask, bias, size,
    d: tl.constexpr, UNIT: tl.constexpr, FOLD: tl.constexpr, ROOM: tl.constexpr, SLOTS: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, TALL: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
    CHECK: tl.constexpr,
):  # fmt: skip
    """A tile's sums for each key; and its keys that reach the bar, at the ends of their rows' lists."""
    j = start + tl.arange(0, KEYS)
    at = j[None, :]
    scores = score_keys(query, k, b, h, i, at, score, bias, size, d, UNIT, FOLD, D, ROWS, KEYS, PRECISION, FAST, CHECK)
    weights = tl.exp2(lift(scores, score, base, FOLD)) * share
    if CHECK:
        allowed = allow(mask, b, h, i, at, last, size.m)
        weights = tl.where(allowed, weights, 0.0)
        scores = tl.where(allowed, scores, -float("inf"))
    if TALL == ROWS:
        tl.store(given + j, tl.sum(weights, 0), mask=j < size.m)
    else:
        piece = tl.arange(0, ROWS // TALL)[:, None].to(tl.int64)
        sums = tl.sum(tl.reshape(weights, [ROWS // TALL, TALL, KEYS]), 1)
        tl.store(given + piece * wide + at, sums, mask=at < size.m)
    if ROOM > 0:
        # keys eight apart lie in one thread; their groups are listed, and taken apart by `list_keys`
        parts = tl.reshape(scores, [ROWS, KEYS // 8, 8])
        highest = tl.max(parts, 1)
        bit = tl.arange(0, KEYS // 8)[None, :, None]
        members = tl.sum(tl.where(parts >= tl.expand_dims(bar, 2), 1 << bit, 0), 1)
        passes = highest > bar
        touches = highest == bar
        group = tl.arange(0, 8)[None, :]
        turn, more = _take_turns(passes, group)
        turn += passed
        passed += more
        later, more = _take_turns(touches, group)
        later += touched
        touched += more
        slot = tl.where(passes, turn, ROOM + later)
        has_room = (passes & (turn < ROOM)) | (touches & (later < SLOTS - ROOM))
        number = start // KEYS * 8 + group
        tl.store(lists.groups + own * SLOTS + slot, number * 256 + members, mask=has_room)
    return passed, touched


@triton.jit
def _take_turns(flags, lane):
    """How many of eight flags are set before each, and how many in all: four bits for each, added up by a product."""
    bits = tl.sum(tl.where(flags, 1 << (lane * 4), 0), 1, keep_dims=True).to(tl.uint32, bitcast=True)
    before = bits & ((1 << (lane * 4)) - 1).to(tl.uint32, bitcast=True)
    return ((before * 0x11111111) >> 28).to(tl.int32), ((bits * 0x11111111) >> 28).to(tl.int32)


@triton.jit
def write_rows(
    q, k, found, heads, chosen, out, score, mask, bias, size, d: tl.constexpr, UNIT: tl.constexpr, FOLD: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """All weights of `ROWS` chosen queries of one head (−1 is none) for a block of keys, into `out` (…, ROWS, m)."""
    blocks = tl.cdiv(size.m, KEYS)
    group, start = tl.program_id(0) // blocks, tl.program_id(0) % blocks * KEYS
    head = tl.load(heads + group)
    b, h = head // size.heads, head % size.heads
    line = tl.arange(0, ROWS)[:, None]
    i = tl.load(chosen + group * ROWS + line)
    here = i >= 0
    i = tl.maximum(i, 0)
    x = tl.arange(0, D)[None, :]
    query = tl.load(find_rows(q, b, h) + i.to(tl.int64) * q.i + x * q.d, mask=here & (x < d), other=0.0)
    row = head.to(tl.int64) * size.n + i
    base = tl.load(found.base + row)
    share = tl.load(found.share + row)
    j = start + tl.arange(0, KEYS)[None, :]
    weights = _weigh(
        base, share, query, k, b, h, i, j, size.n, score, mask, bias, size, d, UNIT, FOLD, D, ROWS, KEYS,
        PRECISION, FAST,
    )  # fmt: skip
    spot = (group * ROWS + line).to(tl.int64) * size.m + j
    tl.store(out + spot, weights, mask=here & (j < size.m))
