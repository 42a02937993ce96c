"""Scores in long double, each with its derivative worked out by hand beside it.

Rows are (b, h, n, d) and (b, h, m, c), scores (b, h, n, m), learned leaves as the caller shaped them. Every function
gives its numbers and a `vjp` that takes the gradient of those and gives the gradients of what went in, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Leaves = Mapping[str, Array]
Facts = Mapping[str, Any]
Pull = Callable[[Array], dict[str, Array]]

LONG = np.longdouble


def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
    """A gradient of what was broadcast, summed back to the shape it was broadcast from."""
    x = np.asarray(x.sum(axis=tuple(range(x.ndim - len(shape)))))
    stretched = tuple(axis for axis, size in enumerate(shape) if size == 1)
    # of no axes at all a sum is a scalar, not an array
    return np.asarray(x.sum(axis=stretched, keepdims=True))


def flip(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


# one number to one number, and its derivative


def bend_tanh(x: Array) -> tuple[Array, Array]:
    # 1 − tanh² would lose the digits of a small derivative
    small = np.exp(-2 * np.abs(x))
    return np.tanh(x), 4 * small / (1 + small) ** 2


def bend_sigmoid(x: Array) -> tuple[Array, Array]:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small), small / (1 + small) ** 2


def bend_silu(x: Array) -> tuple[Array, Array]:
    """x·σ(x), with the derivative σ + x·σ′."""
    half, derivative = bend_sigmoid(x)
    return x * half, half + x * derivative


def bend_leaky_relu(x: Array) -> tuple[Array, Array]:
    derivative = np.where(x > 0, LONG(1), LONG(0.2))
    return x * derivative, derivative


def bend_elu_plus_one(x: Array) -> tuple[Array, Array]:
    # the exponential of positive numbers is not wanted, and might be too large
    grown = np.exp(np.minimum(x, 0))
    return np.where(x > 0, x + 1, grown), np.where(x > 0, LONG(1), grown)


BENDS = {"tanh": bend_tanh, "silu": bend_silu, "leaky_relu": bend_leaky_relu}


# scores


def score_dot(query: Array, key: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """scale·q·k, or cap·tanh of it over cap."""
    given, cap = facts["given scale"], facts["cap"]
    scale = 1 / np.sqrt(LONG(query.shape[-1])) if given is None else LONG(given)
    scores, derivative = scale * (query @ flip(key)), LONG(1)
    if cap is not None:
        bent, derivative = bend_tanh(scores / LONG(cap))
        scores = LONG(cap) * bent

    def vjp(grad: Array) -> dict[str, Array]:
        grad = scale * derivative * grad
        return {"query": grad @ key, "key": flip(grad) @ query}

    return scores, vjp


def score_bilinear(query: Array, key: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """q·W·k."""
    weight = leaves["score.0"]
    turned = query @ weight

    def vjp(grad: Array) -> dict[str, Array]:
        by_key = grad @ key
        by_head = (flip(query) @ by_key).sum(0)
        return {
            "query": by_key @ flip(weight),
            "key": flip(grad) @ turned,
            "score.0": sum_to(by_head, weight.shape),
        }

    return turned @ flip(key), vjp


def score_cosine(query: Array, key: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """scale·q·k/(‖q‖·‖k‖): a step along q turns nothing, so that part of a gradient falls away."""
    scale = leaves["score.0"].reshape(-1, 1, 1) if "score.0" in leaves else LONG(facts["scale"])
    (q, one_over_q), (k, one_over_k) = (_find_direction(x) for x in (query, key))
    cosine = q @ flip(k)

    def vjp(grad: Array) -> dict[str, Array]:
        scaled = scale * grad
        grads = {
            "query": one_over_q * _leave_across(scaled @ k, q),
            "key": one_over_k * _leave_across(flip(scaled) @ q, k),
        }
        if "score.0" in leaves:
            grads["score.0"] = sum_to((grad * cosine).sum((0, 2, 3)), leaves["score.0"].shape)
        return grads

    return scale * cosine, vjp


def _leave_across(x: Array, direction: Array) -> Array:
    """Rows without what lies along a direction."""
    return x - (x * direction).sum(-1, keepdims=True) * direction


def _find_direction(x: Array) -> tuple[Array, Array]:
    """Rows of length one, and one over their lengths; a row of zeros has no direction, and both are zero."""
    length = np.sqrt((x * x).sum(-1, keepdims=True))
    one_over = np.divide(1, length, out=np.zeros_like(length), where=length > 0)
    # divided, not multiplied: one rounding instead of two
    return np.divide(x, length, out=np.zeros_like(x), where=length > 0), one_over


def score_additive(query: Array, key: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """Σ_f w_f·act(q_f + k_f)."""
    weight = leaves["score.0"]
    by_head = weight.reshape(-1, 1, 1, weight.shape[-1])
    bent, derivative = BENDS[facts["activation"]](query[..., :, None, :] + key[..., None, :, :])

    def vjp(grad: Array) -> dict[str, Array]:
        grad = grad[..., None]
        inner = grad * by_head * derivative
        return {
            "query": inner.sum(-2),
            "key": inner.sum(-3),
            "score.0": sum_to((grad * bent).sum((0, 2, 3)), weight.shape),
        }

    return (by_head * bent).sum(-1), vjp


def score_concat(query: Array, key: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """act(a·q + b·k)."""
    a, b = leaves["score.0"], leaves["score.1"]
    of_query, of_key = (x.reshape(-1, 1, x.shape[-1]) for x in (a, b))
    sums = (query * of_query).sum(-1)[..., :, None] + (key * of_key).sum(-1)[..., None, :]
    scores, derivative = BENDS[facts["activation"]](sums)

    def vjp(grad: Array) -> dict[str, Array]:
        inner = grad * derivative
        each_query, each_key = inner.sum(-1)[..., None], inner.sum(-2)[..., None]
        return {
            "query": each_query * of_query,
            "key": each_key * of_key,
            "score.0": sum_to((each_query * query).sum((0, 2)), a.shape),
            "score.1": sum_to((each_key * key).sum((0, 2)), b.shape),
        }

    return scores, vjp


def score_gaussian(query: Array, key: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """−½·Σ_f (w_f·(q_f − k_f))²."""
    width = leaves.get("score.0", np.asarray(LONG(facts["width"])))
    by_head = width.reshape(-1, 1, 1, width.shape[-1] if width.ndim else 1)
    apart = query[..., :, None, :] - key[..., None, :, :]

    def vjp(grad: Array) -> dict[str, Array]:
        grad = grad[..., None]
        inner = -grad * by_head**2 * apart
        grads = {"query": inner.sum(-2), "key": -inner.sum(-3)}
        if "score.0" in leaves:
            grads["score.0"] = sum_to((-grad * by_head * apart**2).sum((0, 2, 3)), width.shape)
        return grads

    return -((by_head * apart) ** 2).sum(-1) / 2, vjp


def score_feature(query: Array, key: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """φ(q)·φ(k) with φ = elu + 1."""
    (q, derivative_q), (k, derivative_k) = bend_elu_plus_one(query), bend_elu_plus_one(key)

    def vjp(grad: Array) -> dict[str, Array]:
        return {"query": derivative_q * (grad @ k), "key": derivative_k * (flip(grad) @ q)}

    return q @ flip(k), vjp


def score_callable(query: Array, key: Array, leaves: Leaves, facts: Facts) -> tuple[Array, Pull]:
    """sin(Σ_f q_f·w_f·k_f) − mean_f |q_f − k_f|, the fuzz's function of a user's own."""
    weight, d = leaves["score.0"], query.shape[-1]
    angle = (query * weight) @ flip(key)
    apart = query[..., :, None, :] - key[..., None, :, :]

    def vjp(grad: Array) -> dict[str, Array]:
        turn = grad * np.cos(angle)
        # sign(0) is 0, and so is the derivative of the absolute value there
        step = grad[..., None] * np.sign(apart) / d
        by_key = turn @ key
        return {
            "query": by_key * weight - step.sum(-2),
            "key": flip(turn) @ (query * weight) + step.sum(-3),
            "score.0": (query * by_key).sum((0, 1, 2)),
        }

    return np.sin(angle) - np.abs(apart).sum(-1) / d, vjp


SCORES = {
    "dot": score_dot, "bilinear": score_bilinear, "cosine": score_cosine, "additive": score_additive,
    "concat": score_concat, "gaussian": score_gaussian, "feature": score_feature, "callable": score_callable,
}  # fmt: skip
