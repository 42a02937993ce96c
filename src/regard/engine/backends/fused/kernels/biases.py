"""Position biases as fragments."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Bias(NamedTuple):
    """One of the three, or none."""

    dense: Any = None  # numbers of any dtype, broadcast axes with a stride of zero
    dense_b: Any = None
    dense_h: Any = None
    dense_i: Any = None
    dense_j: Any = None
    slopes: Any = None  # (h,), and where query i stands
    diagonals: Any = None  # (h, n + m − 1): one number for each j − i
    place: Any = None


@triton.jit
def add_bias(scores, bias, b, h, i, j, n, m, UNIT: tl.constexpr, anchor=None):
    """Scores with what position adds, in units of `UNIT`; `anchor` is a place near those of queries or of keys."""
    if bias.dense is not None:
        row = bias.dense + b.to(tl.int64) * bias.dense_b + h.to(tl.int64) * bias.dense_h
        at = row + i.to(tl.int64) * bias.dense_i + j.to(tl.int64) * bias.dense_j
        values = tl.load(at, mask=(i < n) & (j < m), other=0.0).to(tl.float32)
        if UNIT > 1:
            # the lowest number is no mask, and must not become one; nor must NaN, which a maximum would leave out
            lowest = -3.4028234663852886e38
            values = tl.where(values >= lowest, tl.maximum(values * UNIT, lowest), values)
        scores += values
    if bias.slopes is not None:
        slope = tl.load(bias.slopes + h).to(tl.float32)
        if anchor is None:
            apart = tl.abs(i + bias.place - j).to(tl.float32)
        else:
            # as numbers before they meet, pair by pair; the distance is exact where it is no longer than 2**24
            apart = tl.abs((i + bias.place - anchor).to(tl.float32) - (j - anchor).to(tl.float32))
        scores -= slope * UNIT * apart
    if bias.diagonals is not None:
        at = bias.diagonals + h.to(tl.int64) * (n + m - 1) + (j - i + n - 1)
        scores += tl.load(at, mask=(i < n) & (j < m), other=0.0) * UNIT
    return scores
