"""Weighers in long double, each with its derivative worked out by hand beside it.

Scores, weights and what is allowed are (b, h, n, m). Weights are zero where nothing is allowed; a `vjp` takes their
gradient and gives those of the `scores` and of learned leaves, by name.
"""

from __future__ import annotations

import numpy as np

from tests.fuzz.formulas_scores import LONG, Array, Facts, Leaves, Pull, bend_sigmoid, sum_to

# steps until a threshold is found: Newton's take about ten, halving alone as many as there are bits
MOST_STEPS = 200
EPS = np.finfo(LONG).eps


def subtract_mean(grad: Array, share: Array) -> Array:
    """Each number less the mean of its row by shares that sum to one.

    All are taken relative to the number with the largest share: where that has nearly all, the difference of it and the
    mean would have no digits left.
    """
    top = np.abs(share).argmax(-1)[..., None]
    grad = grad - np.take_along_axis(grad, top, -1)
    return grad - (share * grad).sum(-1, keepdims=True)


def weigh_softmax(scores: Array, allowed: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """e^s/Σe^s; a sink is one more key for each query, whose value is zero."""
    logits = np.where(allowed, scores, -np.inf)
    sink = leaves.get("weigh.0")
    if sink is not None:
        column = np.broadcast_to(sink.reshape(-1, 1, 1), (*scores.shape[:-1], 1))
        logits = np.concatenate([logits, column], -1)
    most = logits.max(-1, keepdims=True)
    powers = np.exp(logits - np.where(np.isfinite(most), most, 0))
    total = powers.sum(-1, keepdims=True)
    shares = powers / np.where(total > 0, total, 1)
    m = scores.shape[-1]

    def vjp(grad: Array) -> dict[str, Array]:
        if sink is None:
            return {"scores": shares * subtract_mean(grad, shares)}
        grad = np.concatenate([grad, np.zeros_like(grad[..., :1])], -1)
        gradients = shares * subtract_mean(grad, shares)
        return {"scores": gradients[..., :m], "weigh.0": sum_to(gradients[..., m].sum((0, 2)), sink.shape)}

    return shares[..., :m], vjp


def weigh_relu(scores: Array, allowed: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """scale·max(s, 0)^power."""
    power, scale = facts["power"], LONG(facts["weigh scale"])
    is_on = allowed & (scores > 0)
    positive = np.where(is_on, scores, 0)

    def vjp(grad: Array) -> dict[str, Array]:
        return {"scores": np.where(is_on, grad * scale * power * positive ** (power - 1), 0)}

    return scale * positive**power, vjp


def weigh_sigmoid(scores: Array, allowed: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """1/(1 + e^−(s + shift))."""
    weights, derivative = (np.where(allowed, x, 0) for x in bend_sigmoid(scores + LONG(facts["shift"])))
    return weights, lambda grad: {"scores": grad * derivative}


def weigh_sum(scores: Array, allowed: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """s/Σs; a row that sums to zero gives zeros."""
    seen = np.where(allowed, scores, 0)
    total = seen.sum(-1, keepdims=True)
    one_over = np.divide(1, total, out=np.zeros_like(total), where=total != 0)
    weights = seen * one_over

    def vjp(grad: Array) -> dict[str, Array]:
        return {"scores": np.where(allowed, one_over * subtract_mean(grad, weights), 0)}

    return weights, vjp


def weigh_hard(scores: Array, allowed: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """All weight on the first of the best keys; a gradient reaches no score. Noise for a sample is in the scores."""
    best = np.where(allowed, scores, -np.inf).argmax(-1)[..., None]
    weights = np.where(allowed & (np.arange(scores.shape[-1]) == best), LONG(1), LONG(0))
    return weights, lambda grad: {"scores": np.zeros_like(grad)}


def weigh_entmax(scores: Array, allowed: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """[(α − 1)s − τ]₊^(1/(α − 1)), with the τ that makes a row sum to one.

    The unknown is not τ but how far the last key with a weight lies above it: where α > 2 a weight near τ is steep, and
    the error of a τ with all digits would be a large one of that weight.
    """
    alpha = LONG(facts["alpha"])
    logits = (alpha - 1) * np.where(allowed, scores, -np.inf)
    # a row that sees nothing has no largest score: any finite number will do, it gets no weight below
    logits[~allowed.any(-1)] = 0
    order = np.argsort(-logits, axis=-1, kind="stable")
    ranked = np.take_along_axis(logits, order, -1)
    last = _find_last(ranked, np.maximum(allowed.sum(-1), 1), alpha)
    above, is_in = _measure_above(ranked, last)
    height = np.where(is_in, above + _solve_rest(above, is_in, alpha), 0)
    ranked_weights = _raise(height, 1 / (alpha - 1))
    ranked_derivatives = np.where(height > 0, _raise(np.where(height > 0, height, 1), (2 - alpha) / (alpha - 1)), 0)
    weights, derivatives = (np.zeros_like(logits) for _ in range(2))
    np.put_along_axis(weights, order, ranked_weights, -1)
    np.put_along_axis(derivatives, order, ranked_derivatives, -1)
    weights, derivatives = np.where(allowed, weights, 0), np.where(allowed, derivatives, 0)
    total = derivatives.sum(-1, keepdims=True)

    def vjp(grad: Array) -> dict[str, Array]:
        return {"scores": derivatives * subtract_mean(grad, derivatives / np.where(total > 0, total, 1))}

    return weights, vjp


def _raise(x: Array, power: np.longdouble) -> Array:
    """x^power; the whole powers without a logarithm."""
    if power == 0:
        return np.ones_like(x)
    if power == 1:
        return x
    return x * x if power == 2 else np.power(x, power)


def _measure_above(ranked: Array, last: Array) -> tuple[Array, Array]:
    """How far each logit lies above the one of rank `last`, and which do: zero for those behind it."""
    is_in = np.arange(ranked.shape[-1]) <= last[..., None]
    lowest = np.take_along_axis(ranked, last[..., None], -1)
    return np.where(is_in, ranked - lowest, 0), is_in


def _find_last(ranked: Array, counts: Array, alpha: np.longdouble) -> Array:
    """The rank of the last logit with a weight: were its own zero, the others would not yet sum to one."""
    low, high = np.zeros_like(counts), counts - 1
    while (low < high).any():
        middle = (low + high + 1) // 2
        above, _ = _measure_above(ranked, middle)
        # far above is enough already, and its power might be too large
        total = _raise(np.minimum(above, 2), 1 / (alpha - 1)).sum(-1)
        low, high = np.where(total < 1, middle, low), np.where(total < 1, high, middle - 1)
    return low


def _solve_rest(above: Array, is_in: Array, alpha: np.longdouble) -> Array:
    """The u with Σ (above + u)^(1/(α − 1)) = 1 over those that are in, as (…, 1)."""
    count = is_in.sum(-1, keepdims=True).astype(LONG)
    once = above.sum(-1, keepdims=True)
    if alpha == 2:
        return (1 - once) / count
    if alpha == 1.5:
        # the quadratic formula, turned so that a small root keeps its digits
        left = 1 - (above * above).sum(-1, keepdims=True)
        return left / (once + np.sqrt(once * once + count * left))
    power = alpha - 1
    # the sum is convex in u for α < 2, and in u^(1/(α − 1)), the last weight itself, beyond
    own = np.maximum(power, 1)

    def evaluate(x: Array) -> tuple[Array, Array]:
        height = np.where(is_in, above + _raise(x, own), 0)
        weights = _raise(height, 1 / power)
        # the derivative of a power is the power over its base; that of the last weight by itself is one
        derivatives = np.divide(weights, height, out=np.zeros_like(height), where=height > 0)
        derivative = derivatives.sum(-1, keepdims=True) * _raise(x, own - 1) * (own / power)
        return weights.sum(-1, keepdims=True) - 1, derivative

    # no weight is less than the last, so that it is at most their mean
    low, high = np.zeros_like(count), _raise(1 / count, power / own)
    x, step = high, high - low
    is_done = np.zeros(x.shape, bool)
    for _ in range(MOST_STEPS):
        value, derivative = evaluate(x)
        low, high = np.where(value < 0, x, low), np.where(value < 0, high, x)
        newton = x - np.divide(value, derivative, out=np.zeros_like(x), where=derivative > 0)
        # what is left is the rounding of the sum, or of x: it would never end
        is_done |= (np.abs(value) <= 8 * EPS) | (np.abs(newton - x) <= 4 * EPS * x)
        if is_done.all():
            break
        # halve the interval where Newton would leave it, or creeps
        is_good = (newton >= low) & (newton <= high) & (np.abs(newton - x) <= step / 2)
        moved = np.where(is_done, x, np.where(is_good, newton, (low + high) / 2))
        x, step = moved, np.abs(moved - x)
    return _raise(x, own)


WEIGHERS = {
    "softmax": weigh_softmax, "relu": weigh_relu, "sigmoid": weigh_sigmoid, "sum": weigh_sum, "hard": weigh_hard,
    "entmax": weigh_entmax,
}  # fmt: skip
