"""Normalisers as fragments: with a running statistic, one by one, or from a solved row."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.scores import invert, raise_two


class Weigh(NamedTuple):
    """The numbers of a weigher."""

    scale: Any = None  # relu
    shift: Any = None  # sigmoid
    sink: Any = None  # softmax: (1 or h,) logits
    sink_h: Any = None
    steep: Any = None  # entmax: alpha − 1
    power: Any = None  # entmax: 1 / (alpha − 1)


class Stat(NamedTuple):
    """Two float32 that a row is remembered by.

    Softmax has its peak and 1/total, entmax its peak and threshold, hard attention the key. Torch's kernels keep one,
    the natural logsumexp.
    """

    at: Any
    apart: Any  # how far the second lies from the first, where there is one


@triton.jit
def load_stat(stat, row, i, n, IS_LOGSUMEXP: tl.constexpr):
    """Both numbers of rows; infinity and zero past the last one."""
    one = tl.load(stat.at + row, mask=i < n, other=float("inf"))
    if IS_LOGSUMEXP:
        return one * 1.4426950408889634, tl.where(i < n, 1.0, 0.0)
    else:
        return one, tl.load(stat.at + stat.apart + row, mask=i < n, other=0.0)


@triton.jit
def raise_to(x, power):
    """x^power for x ≥ 0, and 0 for 0 whatever the power; NaN stays."""
    return tl.where(x > 0, tl.exp2(power * tl.log2(tl.where(x > 0, x, 1.0))), x * 0.0)


@triton.jit
def weigh_again(scores, j, one, other, weigh, KIND: tl.constexpr, FAST: tl.constexpr):
    """The weights of a tile from its scores and its rows' statistics; for entmax their roots."""
    if KIND == "softmax":
        # peak and total apart: in peak + log(total) a large peak would swallow the total
        return raise_two(scores - one, FAST) * other
    elif KIND == "sum1":
        # before the total is known
        return scores
    elif KIND == "sum":
        return scores * other
    elif KIND == "sigmoid":
        return invert(1 + raise_two((scores + weigh.shift) * -1.4426950408889634, FAST), FAST)
    elif KIND == "relu1":
        return tl.where(scores < 0, 0.0, scores) * weigh.scale
    elif KIND == "relu2":
        lifted = tl.where(scores < 0, 0.0, scores)
        return lifted * lifted * weigh.scale
    elif KIND == "relu3":
        lifted = tl.where(scores < 0, 0.0, scores)
        return lifted * lifted * lifted * weigh.scale
    elif KIND == "hard":
        # NaN rows have no best key, and show it
        return tl.where(one != one, one, tl.where(j.to(tl.float32) == one, 1.0, 0.0))
    else:
        return take_power(gap(scores, one, other, weigh), weigh, KIND)


@triton.jit
def gap(scores, peak, threshold, weigh):
    """How far a score lies above its row's threshold, for entmax."""
    above = (scores - peak) * weigh.steep - threshold
    return tl.where(above < 0, 0.0, above)


@triton.jit
def take_power(gaps, weigh, KIND: tl.constexpr):
    if KIND == "entmax2":
        return gaps
    elif KIND == "entmax1.5":
        return gaps * gaps
    else:
        tl.static_assert(KIND == "entmax")
        return raise_to(gaps, weigh.power)


@triton.jit
def lean(scores, one, other, weigh, KIND: tl.constexpr):
    """Entmax: the support that its derivative is made of, weight^(2 − alpha)."""
    gaps = gap(scores, one, other, weigh)
    if KIND == "entmax2":
        return tl.where(gaps > 0, 1.0, 0.0)
    elif KIND == "entmax1.5":
        return gaps
    else:
        return raise_to(gaps, weigh.power - 1)


@triton.jit
def slope_weights(scores, weights, grad, mean, one, other, weigh, KIND: tl.constexpr):
    """The gradient of the scores (not in UNITs) from that of the weights."""
    if KIND == "softmax":
        return weights * (grad - mean)
    elif KIND == "sum":
        return (grad - mean) * other
    elif KIND == "sigmoid":
        return grad * weights * (1 - weights)
    elif KIND == "relu1":
        return tl.where(scores <= 0, 0.0, grad) * weigh.scale
    elif KIND == "relu2":
        return grad * tl.where(scores <= 0, 0.0, scores) * (2 * weigh.scale)
    elif KIND == "relu3":
        return grad * tl.where(scores <= 0, 0.0, scores * scores) * (3 * weigh.scale)
    elif KIND == "hard":
        return tl.zeros(grad.shape, tl.float32)
    else:
        return lean(scores, one, other, weigh, KIND) * (grad - mean)
