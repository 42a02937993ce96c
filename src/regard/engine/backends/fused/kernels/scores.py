"""Score functions as fragments: dot products, and sums over features.

Scores come out in units of `UNIT`: log2(e) where a softmax follows, since the hardware's exponential is that of two.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Score(NamedTuple):
    """A dot product with `scale` and `cap`; or features, laid out (b, heads, d rounded up to fours, positions)."""

    scale: Any = None  # times UNIT where there is no cap
    slope: Any = None  # the scale itself
    cap: Any = None
    weight: Any = None  # (1 or h, d)
    weight_h: Any = None
    queries: Any = None
    keys: Any = None
    form: Any = None  # what tanh is made from: GROWN, SMALL or PLAIN
    most_queries: Any = None  # the largest |number| of each BLOCK of positions, as `measure_rows` has it
    most_keys: Any = None


# tanh(q + k) is made from e^{2q} and e^{2k}; from e^{2q} − 1 and e^{2k} − 1 where all are small; from q + k where some
# are too large for either
GROWN: tl.constexpr = tl.constexpr(0)
SMALL: tl.constexpr = tl.constexpr(1)
PLAIN: tl.constexpr = tl.constexpr(2)
# positions to a largest number
BLOCK: tl.constexpr = tl.constexpr(64)
# up to this sum of largest numbers four factors 1 + e^{2(q + k)} have a product below 2^127
NEAR: tl.constexpr = tl.constexpr(10.5)


@triton.jit
def are_near(score, b, h, i, j, heads, group, n, m, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """Whether one division may serve several features in the tile whose first query and key are i and j."""
    if score.most_queries is not None:
        query = _most(score.most_queries, b * heads + h, i, n, ROWS)
        return query + _most(score.most_keys, b * (heads // group) + h // group, j, m, KEYS) <= NEAR
    else:
        return False


@triton.jit
def _most(most, head, start, count, COUNT: tl.constexpr):
    blocks = tl.cdiv(count, BLOCK)
    at = start // BLOCK + tl.arange(0, COUNT // BLOCK if COUNT > BLOCK else 1)
    found = tl.load(most + head * blocks + at, mask=at < blocks, other=0.0)
    # infinity is near nothing
    return tl.max(tl.where(found < 0, float("inf"), found))


@triton.jit
def scale_dot(dots, score, UNIT: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr):
    if score.cap is not None:
        share = dots * (score.scale / score.cap)
        if PRECISION == "tf32":
            # to 1e-5 of a score, which half precision does not feel; small ones by their series, which loses no digits
            far = 1 - 2 * invert(1 + raise_two(share * 2.8853900817779268, FAST), FAST)
            near = share - share * share * share * 0.3333333333333333
            return UNIT * score.cap * tl.where(tl.abs(share) < 0.02, near, far)
        else:
            return UNIT * score.cap * _tanh(share)
    else:
        return dots * score.scale


@triton.jit
def slope_dot(grad, scores, score, UNIT: tl.constexpr):
    """The gradient of the dot products over `scale`, from that of the scores before any bias."""
    if score.cap is not None:
        bent = scores / (UNIT * score.cap)
        return grad * (1 - bent * bent)
    else:
        return grad


@triton.jit
def invert(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def raise_two(x, FAST: tl.constexpr):
    """2^x: what `tl.exp2` comes to, but that has a library linked for it, which each kernel would wait for."""
    if FAST:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.exp2(x)


@triton.jit
def _tanh(x):
    # 1 − 2/(1 + e^{2|x|}) with the sign put back
    large = 1 - 2 / (1 + tl.exp(2 * tl.abs(x)))
    return _keep_digits(x, tl.where(x < 0, -large, large))


@triton.jit
def _keep_digits(x, bent):
    """tanh(x), by its series where that is small: a difference from one would lose its digits."""
    square = x * x
    small = x * (1 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835)))))
    return tl.where(tl.abs(x) < 0.25, small, bent)


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def activate(x, KIND: tl.constexpr):
    if KIND == "tanh":
        return _tanh(x)
    elif KIND == "relu":
        # written so that NaN stays
        return tl.where(x < 0, 0.0, x)
    elif KIND == "sigmoid":
        return _sigmoid(x)
    elif KIND == "gelu":
        return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif KIND == "silu":
        return x * _sigmoid(x)
    else:
        tl.static_assert(KIND == "leaky_relu")
        return tl.where(x < 0, 0.2 * x, x)


@triton.jit
def slope_activation(x, KIND: tl.constexpr):
    if KIND == "tanh":
        bent = _tanh(x)
        return 1 - bent * bent
    elif KIND == "relu":
        return tl.where(x > 0, 1.0, 0.0)
    elif KIND == "sigmoid":
        bent = _sigmoid(x)
        return bent * (1 - bent)
    elif KIND == "gelu":
        return 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    elif KIND == "silu":
        bent = _sigmoid(x)
        return bent * (1 + x * (1 - bent))
    else:
        tl.static_assert(KIND == "leaky_relu")
        return tl.where(x > 0, 1.0, 0.2)


@triton.jit
def sum_features(
    score, queries, keys, h, i, j, n, m, d: tl.constexpr, KIND: tl.constexpr, UNIT: tl.constexpr, FAST: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, near=False,
):  # fmt: skip
    """A (TALL, WIDE) tile of Σ_f w_f·φ(q_f, k_f); `queries` and `keys` point to the first feature of the sequence."""
    weight = score.weight + h * score.weight_h
    total = tl.zeros([TALL, WIDE], tl.float32)
    if KIND == "distance" and d == 1:
        q, k = load_feature(queries, keys, 0, i, j, n, m)
        w = load_weight(weight, 0, d)
        return (q - k) * (q - k) * (w * w * (-0.5 * UNIT))
    elif KIND == "distance":
        for f in range(d):
            q, k = load_feature(queries, keys, f, i, j, n, m)
            step = (q - k) * load_weight(weight, f, d)
            total += step * step
        return total * (-0.5 * UNIT)
    elif KIND == "tanh":
        form = tl.load(score.form)
        if near & (form == GROWN):
            total = _share_divisions(weight, queries, keys, i, j, n, m, d, FAST, TALL, WIDE)
        else:
            for f in range(d):
                q, k = load_feature(queries, keys, f, i, j, n, m)
                bent, _ = bend(q, k, KIND, form, FAST)
                total += load_weight(weight, f, d) * bent
        return total * UNIT
    else:
        for f in range(d):
            q, k = load_feature(queries, keys, f, i, j, n, m)
            total += load_weight(weight, f, d) * activate(q + k, KIND)
        return total * UNIT


@triton.jit
def _share_divisions(
    weight, queries, keys, i, j, n, m, d: tl.constexpr, FAST: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr
):
    """Σ_f w_f·tanh(q_f + k_f) with one division for four features.

    The tile is folded so that a thread meets several positions of either side, as in a matrix product: meeting many of
    one side with one of the other, it would spend as long on loading as on the arithmetic.
    """
    LOW: tl.constexpr = min(8, TALL)
    NEXT: tl.constexpr = min(16, WIDE)
    if i.shape[0] == 1:
        i = tl.reshape(i, [1, WIDE // NEXT, 1, NEXT])
        j = tl.reshape(j, [TALL // LOW, 1, LOW, 1])
    else:
        i = tl.reshape(i, [TALL // LOW, 1, LOW, 1])
        j = tl.reshape(j, [1, WIDE // NEXT, 1, NEXT])
    total = tl.zeros([TALL // LOW, WIDE // NEXT, LOW, NEXT], tl.float32)
    whole = 0.0
    for f in range(0, d, 4):
        w0, w1 = load_weight(weight, f, d), load_weight(weight, f + 1, d)
        w2, w3 = load_weight(weight, f + 2, d), load_weight(weight, f + 3, d)
        q0, k0 = _fetch_feature(queries, keys, f, i, j, n, m, FAST)
        q1, k1 = _fetch_feature(queries, keys, f + 1, i, j, n, m, FAST)
        q2, k2 = _fetch_feature(queries, keys, f + 2, i, j, n, m, FAST)
        q3, k3 = _fetch_feature(queries, keys, f + 3, i, j, n, m, FAST)
        x0, x1, x2, x3 = 1 + q0 * k0, 1 + q1 * k1, 1 + q2 * k2, 1 + q3 * k3
        left, right = x0 * x1, x2 * x3
        top = (w0 * x1 + w1 * x0) * right + (w2 * x3 + w3 * x2) * left
        total += top * invert(left * right, FAST)
        whole += (w0 + w1) + (w2 + w3)
    total = whole - 2 * total
    return tl.reshape(tl.permute(total, [0, 2, 1, 3]), [TALL, WIDE])


@triton.jit
def load_feature(queries, keys, f, i, j, n, m):
    """Feature f of queries i and keys j; positions past the last read whatever number lies there."""
    return tl.load(queries + f * n + i), tl.load(keys + f * m + j)


@triton.jit
def _fetch_feature(queries, keys, f, i, j, n, m, FAST: tl.constexpr):
    """The same, as a load that the compiler does not know as one: it would lay out the whole tile by it."""
    if FAST:
        return _fetch(queries + f * n + i), _fetch(keys + f * m + j)
    else:
        return load_feature(queries, keys, f, i, j, n, m)


@triton.jit
def _fetch(at):
    return tl.inline_asm_elementwise(
        "ld.global.nc.f32 $0, [$1];", "=f,l", [at.to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def load_weight(weight, f, d):
    return tl.load(weight + f, mask=f < d, other=0.0).to(tl.float32)


@triton.jit
def bend(q, k, KIND: tl.constexpr, form, FAST: tl.constexpr):
    """φ(q, k) and its derivative by q; for a distance over its width, −½(q − k)² and −(q − k)."""
    if KIND == "distance":
        apart = q - k
        return -0.5 * apart * apart, -apart
    elif KIND == "tanh":
        # one body for all forms, and little in it that is one's own: it is compiled for each pair of a thread
        if form == PLAIN:
            grown = raise_two((q + k) * 2.8853900817779268, FAST)
        else:
            grown = q * k
        if form == SMALL:
            # e^{2(q + k)} − 1, of which a sum with one would lose the digits
            grown += q + k
            share = invert(grown + 2, FAST)
            bent = grown * share
        else:
            share = invert(1 + grown, FAST)
            bent = 1 - 2 * share
            if form == PLAIN:
                bent = _keep_digits(q + k, bent)
        slope = 4 * (share - share * share)
        return bent, slope
    else:
        return activate(q + k, KIND), slope_activation(q + k, KIND)
