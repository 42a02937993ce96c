"""A look, the lists of its second pass put in order: groups of keys taken apart, and each row's keys ranked."""

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.biases import add_bias
from regard.engine.backends.fused.kernels.look_keys import find_query
from regard.engine.backends.fused.kernels.scores import scale_dot
from regard.engine.backends.fused.kernels.tiles import find_rows


@triton.jit
def list_keys(lists, ROOM: tl.constexpr, SLOTS: tl.constexpr, KEYS: tl.constexpr, LINES: tl.constexpr):
    """The groups of `LINES` rows taken apart."""
    own = tl.program_id(0) * LINES + tl.arange(0, LINES)[:, None]
    slot = tl.arange(0, SLOTS)[None, :]
    passed = tl.load(lists.sums + own * 2)
    touched = tl.load(lists.sums + own * 2 + 1)
    has = tl.where(slot < ROOM, slot < passed, slot - ROOM < touched)
    groups = tl.load(lists.groups + own * SLOTS + slot, mask=has, other=0)
    bit = tl.arange(0, 8)[None, None, :]
    flags = tl.reshape((tl.expand_dims(groups, 2) >> bit) & 1, [LINES, SLOTS * 8])
    number = tl.expand_dims(groups // 256, 2)
    keys = tl.reshape(number // 8 * KEYS + number % 8 + bit * 8, [LINES, SLOTS * 8])
    place = tl.cumsum(flags, 1) - flags
    tl.store(lists.keys + own * SLOTS + place, keys, mask=(flags > 0) & (place < SLOTS))
    # of those that equal the bar, any will do; all others must have a place
    is_above = tl.arange(0, SLOTS * 8)[None, :] < ROOM * 8
    above = tl.sum(tl.where(is_above, flags, 0), 1, keep_dims=True)
    count = tl.minimum(tl.sum(flags, 1, keep_dims=True), SLOTS)
    tl.store(lists.counts + own, tl.where((passed > ROOM) | (above > SLOTS), SLOTS + 1, count))


@triton.jit
def rank_keys(
    q, k, found, lists, part, top_keys, top_weights, again, score, bias, size, d: tl.constexpr, UNIT: tl.constexpr,
    FOLD: tl.constexpr, TOP: tl.constexpr, SLOTS: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
    TALL: tl.constexpr,
):  # fmt: skip
    """One row's list in order. `again` is set where the list had no room for all, or the row is NaN."""
    own = tl.program_id(0)
    head = part.head + own // ROWS // part.blocks
    i, after = find_query(part, own // ROWS % part.blocks, own % ROWS, size, ROWS, TALL)
    if i >= after:
        return
    row = head.to(tl.int64) * size.n + i
    bar = tl.load(found.bar + row)
    share = tl.load(found.share + row)
    count = tl.load(lists.counts + own)
    # passes that rounded differently would find too few
    short = (bar > -float("inf")) & (count < TOP)
    tl.store(again + row, ((count > SLOTS) | short | (share != share)).to(tl.int8))
    given = lists.keys + own * SLOTS, top_keys + row * TOP, top_weights + row * TOP, tl.load(found.peak + row)
    if count <= SLOTS // 2:
        _rank(q, k, given, count, head, i, score, bias, size, d, UNIT, FOLD, TOP, SLOTS // 2, D)
    elif count <= SLOTS:
        _rank(q, k, given, count, head, i, score, bias, size, d, UNIT, FOLD, TOP, SLOTS, D)


@triton.jit
def _rank(
    q, k, given, count, head, i, score, bias, size, d: tl.constexpr, UNIT: tl.constexpr, FOLD: tl.constexpr,
    TOP: tl.constexpr, SLOTS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The place of a key is how many come before it."""
    keys, top_keys, top_weights, peak = given
    b, h = head // size.heads, head % size.heads
    slot = tl.arange(0, SLOTS)
    is_there = slot < count
    j = tl.load(keys + slot, mask=is_there, other=0)
    x = tl.arange(0, D)[None, :]
    query = tl.load(find_rows(q, b, h) + i.to(tl.int64) * q.i + x * q.d, mask=x < d, other=0.0).to(tl.float32)
    at = find_rows(k, b, h // size.group) + j[:, None].to(tl.int64) * k.i + x * k.d
    key = tl.load(at, mask=is_there[:, None] & (x < d), other=0.0).to(tl.float32)
    scores = tl.sum(query * key, 1)
    if not FOLD:
        scores = add_bias(scale_dot(scores, score, UNIT, "ieee", False), bias, b, h, i + 0 * j, j, size.n, size.m, UNIT)
    scores = tl.where(is_there, scores, -float("inf"))
    other, their = scores[None, :], j[None, :]
    wins = (other > scores[:, None]) | ((other == scores[:, None]) & is_there[None, :] & (their < j[:, None]))
    place = tl.sum(tl.where(wins, 1, 0), 1)
    # these dot products round otherwise than those of the passes: only how far they lie below the largest counts
    below = scores - tl.max(scores, 0)
    if FOLD:
        below = below * score.scale
    weights = tl.where(place == 0, 1.0, tl.exp2(below)) * peak
    shown = is_there & (place < TOP)
    tl.store(top_weights + place, weights, mask=shown)
    tl.store(top_keys + place, tl.where(weights == 0, -1, j).to(tl.int64), mask=shown)
    # the others find no key
    is_left = (slot >= count) & (slot < TOP)
    tl.store(top_weights + slot, tl.zeros([SLOTS], tl.float32), mask=is_left)
    tl.store(top_keys + slot, tl.full([SLOTS], -1, tl.int64), mask=is_left)
