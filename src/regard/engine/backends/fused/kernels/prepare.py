"""What is done beside a kernel: features laid out for neighbouring threads, and their gradients as rows."""

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.scores import BLOCK, GROWN, PLAIN, SMALL
from regard.engine.backends.fused.kernels.tiles import load_rows, store_rows


@triton.jit(do_not_specialize=["of_queries", "room"])
def measure_rows(queries, keys, most, size, of_queries, room, d: tl.constexpr, D: tl.constexpr):
    """The largest finite |number| of each block; less than zero, by one, where it also holds infinity.

    The first programs are `of_queries`; those of keys begin at `room`.
    """
    at = tl.program_id(0)
    block, _, _ = _load_either(queries, keys, size, at, of_queries, BLOCK, d, D)
    far = tl.abs(block.to(tl.float32))
    # NaN is neither: it shows by itself
    finite = tl.max(tl.where(far < float("inf"), far, 0.0))
    is_open = tl.max(tl.where(far == float("inf"), 1, 0)) > 0
    into = most + tl.where(at < of_queries, at, at - of_queries + room)
    tl.store(into, tl.where(is_open, -1.0 - finite, finite))
    if at == 0:
        # between the two lies nobody's
        between = of_queries + tl.arange(0, 4)
        tl.store(most + between, tl.zeros([4], tl.float32), mask=between < room)


@triton.jit
def _load_either(queries, keys, size, at, of_queries, COUNT: tl.constexpr, d: tl.constexpr, D: tl.constexpr):
    """A block of queries or of keys by its number, with its sequence and head, and where it begins."""
    if at < of_queries:
        blocks = tl.cdiv(size.n, COUNT)
        group, start = at // blocks, at % blocks * COUNT
        block = load_rows(queries, group // size.heads, group % size.heads, start, size.n, d, COUNT, D, True)
    else:
        blocks = tl.cdiv(size.m, COUNT)
        heads = size.heads // size.group
        group, start = (at - of_queries) // blocks, (at - of_queries) % blocks * COUNT
        block = load_rows(keys, group // heads, group % heads, start, size.m, d, COUNT, D, True)
    return block, group, start


@triton.jit
def _choose_form(most, count, IS_HALF: tl.constexpr):
    """What tanh is to be made from, by the largest finite numbers of all blocks.

    e^inf is the infinity that the forms can bear, but for the shared divisions, which `are_near` keeps away.
    """
    most_of = 0.0
    for start in range(0, count, 1024):
        at = start + tl.arange(0, 1024)
        found = tl.load(most + at, mask=at < count, other=0.0)
        most_of = tl.maximum(most_of, tl.max(tl.where(found < 0, -1.0 - found, found)))
    # e^{2x} and its inverse stay normal numbers up to 40
    chosen = tl.where(most_of <= 40, GROWN, PLAIN)
    # 1 − 2/(1 + …) would lose the digits of small numbers; half precision has few to lose
    return tl.where(most_of < (0.002 if IS_HALF else 0.5), SMALL, chosen)


@triton.jit(do_not_specialize=["of_queries", "measured"])
def lay_out_features(
    queries, keys, of_rows, of_keys, most, form, size, of_queries, measured, d: tl.constexpr, D: tl.constexpr,
    COUNT: tl.constexpr, IS_HALF: tl.constexpr, BEHIND: tl.constexpr,
):  # fmt: skip
    """(positions, d) as (d, positions): the numbers themselves, or for tanh what the form asks for that is chosen here.

    The first programs are `of_queries`; `most` holds the largest numbers as they were measured.
    """
    at = tl.program_id(0)
    x, group, start = _load_either(queries, keys, size, at, of_queries, COUNT, d, D)
    x = x.to(tl.float32)
    if most is not None:
        chosen = _choose_form(most, measured, IS_HALF)
        if at == 0:
            tl.store(form, chosen)
        if chosen == GROWN:
            x = tl.exp(2 * x)
        elif chosen == SMALL:
            x = _expm1(2 * x)
    is_query = at < of_queries
    count = tl.where(is_query, size.n, size.m)
    features = tl.where(is_query, of_rows.to(tl.int64), of_keys.to(tl.int64)).to(tl.pointer_type(tl.float32))
    HIGH: tl.constexpr = (d + 3) // 4 * 4
    f = tl.arange(0, D)[:, None]
    i = start + tl.arange(0, COUNT)[None, :]
    begin = features + group.to(tl.int64) * HIGH * count
    tl.store(begin + f * count + i, tl.trans(x), mask=(f < HIGH) & (i < count))
    if (at == of_queries - 1) | (at == tl.num_programs(0) - 1):
        # blocks read past the last position without looking, and have to find numbers there
        tl.store(begin + HIGH * count + tl.arange(0, BEHIND), tl.zeros([BEHIND], tl.float32))


@triton.jit
def _expm1(x):
    """e^x − 1 for |x| ≤ 1."""
    total = 1.0 / 479001600 * x + 1.0 / 39916800
    total = total * x + 1.0 / 3628800
    total = total * x + 1.0 / 362880
    total = total * x + 1.0 / 40320
    total = total * x + 1.0 / 5040
    total = total * x + 1.0 / 720
    total = total * x + 1.0 / 120
    total = total * x + 1.0 / 24
    total = total * x + 1.0 / 6
    total = total * x + 0.5
    return x + x * x * total


@triton.jit(do_not_specialize=["of_queries"])
def lay_back_features(
    of_rows, of_keys, queries, keys, size, of_queries, d: tl.constexpr, D: tl.constexpr, COUNT: tl.constexpr
):
    """(d, positions) as (positions, d), which rows of queries and of keys have; the first programs are `of_queries`."""
    at = tl.program_id(0)
    f = tl.arange(0, D)[:, None]
    HIGH: tl.constexpr = (d + 3) // 4 * 4
    if at < of_queries:
        blocks = tl.cdiv(size.n, COUNT)
        group, start = at // blocks, at % blocks * COUNT
        i = start + tl.arange(0, COUNT)[None, :]
        begin = of_rows + group.to(tl.int64) * HIGH * size.n
        x = tl.load(begin + f * size.n + i, mask=(f < HIGH) & (i < size.n), other=0.0)
        store_rows(tl.trans(x), queries, group // size.heads, group % size.heads, start, size.n, d, COUNT, D)
    else:
        blocks = tl.cdiv(size.m, COUNT)
        heads = size.heads // size.group
        group, start = (at - of_queries) // blocks, (at - of_queries) % blocks * COUNT
        j = start + tl.arange(0, COUNT)[None, :]
        begin = of_keys + group.to(tl.int64) * HIGH * size.m
        x = tl.load(begin + f * size.m + j, mask=(f < HIGH) & (j < size.m), other=0.0)
        store_rows(tl.trans(x), keys, group // heads, group % heads, start, size.m, d, COUNT, D)
