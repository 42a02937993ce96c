"""Features laid out feature by feature, so that neighbouring threads read neighbouring numbers."""

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.scores import BLOCK, GROWN, PLAIN, SMALL
from regard.engine.backends.fused.kernels.tiles import load_rows


@triton.jit(do_not_specialize=["heads", "count"])
def measure_rows(rows, most, heads, count, d: tl.constexpr, D: tl.constexpr):
    """The largest finite |number| of each block; less than zero, by one, where it also holds infinity."""
    blocks = tl.cdiv(count, BLOCK)
    at = tl.program_id(0)
    block = load_rows(rows, at // blocks // heads, at // blocks % heads, at % blocks * BLOCK, count, d, BLOCK, D, True)
    far = tl.abs(block.to(tl.float32))
    # NaN is neither: it shows by itself
    finite = tl.max(tl.where(far < float("inf"), far, 0.0))
    is_open = tl.max(tl.where(far == float("inf"), 1, 0)) > 0
    tl.store(most + at, tl.where(is_open, -1.0 - finite, finite))


@triton.jit(do_not_specialize=["count"])
def choose_form(most, count, form, IS_HALF: tl.constexpr, COUNT: tl.constexpr):
    """What tanh is to be made from, by the largest finite numbers of all blocks.

    e^inf is the infinity that the forms can bear, but for the shared divisions, which `are_near` keeps away.
    """
    most_of = 0.0
    for start in range(0, count, COUNT):
        at = start + tl.arange(0, COUNT)
        found = tl.load(most + at, mask=at < count, other=0.0)
        most_of = tl.maximum(most_of, tl.max(tl.where(found < 0, -1.0 - found, found)))
    # e^{2x} and its inverse stay normal numbers up to 40
    chosen = tl.where(most_of <= 40, GROWN, PLAIN)
    # 1 − 2/(1 + …) would lose the digits of small numbers; half precision has few to lose
    chosen = tl.where(most_of < (0.002 if IS_HALF else 0.5), SMALL, chosen)
    tl.store(form, chosen)


@triton.jit(do_not_specialize=["heads", "count"])
def lay_out_features(
    rows, features, form, heads, count, d: tl.constexpr, D: tl.constexpr, COUNT: tl.constexpr, IS_TANH: tl.constexpr,
    BEHIND: tl.constexpr,
):  # fmt: skip
    """(positions, d) as (d, positions): the numbers themselves, or for tanh what its form asks for."""
    blocks = tl.cdiv(count, COUNT)
    at = tl.program_id(0)
    start = at % blocks * COUNT
    x = load_rows(rows, at // blocks // heads, at // blocks % heads, start, count, d, COUNT, D, True).to(tl.float32)
    if IS_TANH:
        chosen = tl.load(form)
        if chosen == GROWN:
            x = tl.exp(2 * x)
        elif chosen == SMALL:
            x = _expm1(2 * x)
    f = tl.arange(0, D)[:, None]
    i = start + tl.arange(0, COUNT)[None, :]
    into = features + (at // blocks).to(tl.int64) * ((d + 3) // 4 * 4) * count + f * count + i
    tl.store(into, tl.trans(x), mask=(f < d) & (i < count))
    if at == tl.num_programs(0) - 1:
        # blocks read past the last position without looking, and have to find numbers there
        end = features + (at // blocks + 1).to(tl.int64) * ((d + 3) // 4 * 4) * count
        tl.store(end + tl.arange(0, BEHIND), tl.zeros([BEHIND], tl.float32))


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
