"""Attention written out n×m from the formulas of the papers, in any dtype; it shares nothing with the library.

Run in float64 and `exactly` it is the reference; run in the call's own dtype and `as_is` it is the eager code that a
user would write, whose own error is the yardstick. `rounded` marks every place at which that code rounds a number: both
pass numbers on, `judge.Noise` disturbs each of them as rounding would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.fuzz.pairs import write_bias

Rounded = Callable[[Tensor], Tensor]


def as_is(x: Tensor) -> Tensor:
    return x


def exactly(x: Tensor) -> Tensor:
    return x


def dividing_last(x: Tensor) -> Tensor:
    return x


# eager code may normalise the weights, or, as kernels do, what they summed up
dividing_last.divides_last = True  # type: ignore[attr-defined]
EAGER = as_is, dividing_last


def _act(name: str, x: Tensor, rounded: Rounded) -> Tensor:
    if name == "silu":
        return x * torch.sigmoid(x)
    if name == "leaky_relu":
        return torch.where(x > 0, x, 0.2 * x)
    if rounded in EAGER:
        return torch.tanh(x)
    if rounded is not exactly:
        # the derivative 1 − tanh² of a tanh that was rounded
        fixed = rounded(torch.tanh(x.detach()))
        return fixed + (x - x.detach()) * (1 - fixed * fixed)
    # the derivative by exponentials: torch's has no correct digit left where tanh is near one
    at = x.detach()
    small = torch.exp(-2 * at.abs())
    return torch.tanh(at) + (x - at) * (4 * small / (1 + small) ** 2)


def _sigmoid(x: Tensor, rounded: Rounded) -> Tensor:
    if rounded is not exactly:
        return rounded(torch.sigmoid(x))
    # likewise: torch's derivative is lost where the sigmoid is near one
    at = x.detach()
    small = torch.exp(-at.abs())
    return torch.sigmoid(at) + (x - at) * (small / (1 + small) ** 2)


def _elu_plus_one(x: Tensor, rounded: Rounded) -> Tensor:
    if rounded in EAGER:
        return functional.elu(x) + 1
    # beside a one, e^x would be lost
    return rounded(torch.where(x > 0, x + 1, torch.exp(x.clamp(max=0))))


def score(case: Any, tensors: dict[str, Tensor], rounded: Rounded = exactly) -> Tensor:
    """All scores with their bias, (b, h, n, m), before any mask."""
    query, key = _given(tensors["query"], rounded), _of_heads(_given(tensors["key"], rounded), case.h)
    name, facts = case.score, case.facts
    weights = [_given(tensors[f"score.{at}"], rounded) for at in range(4) if f"score.{at}" in tensors]
    if name == "dot":
        scores = rounded(_product(query, key.mT, rounded) * facts["scale"])
        if facts["cap"] is not None:
            scores = rounded(facts["cap"] * _act("tanh", scores / facts["cap"], rounded))
    elif name == "bilinear":
        scores = _product(_product(query, weights[0], rounded), key.mT, rounded)
    elif name == "cosine":
        scale = weights[0].reshape(-1, 1, 1) if weights else facts["scale"]
        scores = rounded(_product(_unit(query, rounded), _unit(key, rounded).mT, rounded) * scale)
    elif name == "additive":
        mixed = rounded(_act(facts["activation"], rounded(query[..., :, None, :] + key[..., None, :, :]), rounded))
        scores = rounded((mixed * _per_head(weights[0], 2)).sum(-1))
    elif name == "concat":
        left = (query * _per_head(weights[0], 1)).sum(-1)
        right = (key * _per_head(weights[1], 1)).sum(-1)
        mixed = rounded(rounded(left)[..., :, None] + rounded(right)[..., None, :])
        scores = rounded(_act(facts["activation"], mixed, rounded))
    elif name == "gaussian":
        width = _per_head(weights[0], 2) if weights else facts["width"]
        step = rounded(rounded(query[..., :, None, :] - key[..., None, :, :]) * width)
        scores = rounded(-0.5 * (step * step).sum(-1))
    elif name == "feature":
        left, right = _elu_plus_one(query, rounded), _elu_plus_one(key, rounded)
        scores = _product(left, right.mT, rounded)
    elif name == "callable":
        wave = rounded(torch.sin(_product(rounded(query * weights[0]), key.mT, rounded)))
        step = rounded(rounded(query[..., :, None, :] - key[..., None, :, :]).abs().mean(-1))
        scores = user_score(query, key, weights[0]) if rounded in EAGER else rounded(wave - step)
    else:
        raise AssertionError(name)
    if case.bias != "none":
        bias = {at: _given(t, rounded) for at, t in tensors.items() if at.startswith("bias")}
        scores = rounded(scores + write_bias(case.bias, bias, facts, case.n, case.m, scores.dtype))
    return scores


def user_score(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """The score that a user hands in as a function; `weight` is a tensor that it closes over."""
    return torch.sin((query * weight) @ key.transpose(-1, -2)) - (query.unsqueeze(-2) - key.unsqueeze(-3)).abs().mean(
        -1
    )


def weigh(case: Any, tensors: dict[str, Tensor], scores: Tensor, rounded: Rounded = exactly) -> Tensor:
    """The weights of all pairs, zero where the mask hides and in rows that have nothing."""
    allowed, facts, name = case.allowed, case.facts, case.weigh
    if name in ("softmax", "sum") and rounded is not as_is:
        mass, total = _mass(case, tensors, scores, rounded)
        return rounded(mass / total)
    if name == "softmax":
        hidden = scores.masked_fill(~allowed, -torch.inf)
        if "weigh.0" in tensors:
            sink = tensors["weigh.0"].reshape(1, -1, 1, 1).expand(*hidden.shape[:2], hidden.shape[2], 1)
            return torch.softmax(torch.cat([hidden, sink], -1), -1)[..., :-1]
        some = allowed.any(-1, keepdim=True)
        return torch.softmax(hidden.masked_fill(~some, 0.0), -1).masked_fill(~allowed, 0.0)
    if name == "relu":
        shown = scores.masked_fill(~allowed, 0.0).relu()
        return rounded(rounded(shown ** facts["power"]) * facts["weigh scale"])
    if name == "sigmoid":
        return _sigmoid(rounded(scores + facts["shift"]), rounded).masked_fill(~allowed, 0.0)
    if name == "sum":
        shown = scores.masked_fill(~allowed, 0.0)
        total = shown.sum(-1, keepdim=True)
        return shown / torch.where(total == 0, torch.inf, total)
    if name == "entmax":
        return _entmax(scores, allowed, facts["alpha"], rounded)
    if name == "hard":
        with_noise = (scores + case.gumbel.to(scores.dtype) if case.gumbel is not None else scores).detach()
        best = with_noise.masked_fill(~allowed, -torch.inf).argmax(-1, keepdim=True)
        return torch.zeros_like(scores).scatter(-1, best, 1.0).masked_fill(~allowed, 0.0)
    raise AssertionError(name)


def attention(case: Any, tensors: dict[str, Tensor], rounded: Rounded = exactly) -> Tensor:
    """The whole call, (b, h, n, e)."""
    value = _of_heads(_given(tensors["value"], rounded), case.h)
    if case.m == 0:
        # no key at all; the sum keeps the result a function of its inputs
        return value.new_zeros(case.b, case.h, case.n, case.e) + sum(t.sum() * 0 for t in tensors.values())
    scores = score(case, tensors, rounded)
    if getattr(rounded, "divides_last", False) and case.weigh in ("softmax", "sum"):
        mass, total = _mass(case, tensors, scores, rounded)
        return rounded(_product(_kept(case, mass, rounded), value, rounded) / total)
    return _product(_kept(case, weigh(case, tensors, scores, rounded), rounded), value, rounded)


def torch_attention(case: Any, tensors: dict[str, Tensor]) -> Tensor:
    """The same call as a user hands it to torch's fused kernel: plain tensors, one additive mask."""
    query, key, value = tensors["query"], tensors["key"], tensors["value"]
    weights = [tensors[f"score.{at}"] for at in range(2) if f"score.{at}" in tensors]
    scale = 1.0
    if case.score == "dot":
        scale = case.facts["scale"]
    elif case.score == "bilinear":
        query = query @ weights[0]
    elif case.score == "cosine":
        query, key = _unit(query, as_is), _unit(key, as_is)
        query = query * (weights[0].reshape(-1, 1, 1) if weights else case.facts["scale"])
    else:
        query, key = functional.elu(query) + 1, functional.elu(key) + 1
    bias = torch.zeros((), dtype=query.dtype, device=query.device)
    if case.bias != "none":
        named = {at: t for at, t in tensors.items() if at.startswith("bias")}
        bias = write_bias(case.bias, named, case.facts, case.n, case.m, query.dtype)
    mask = torch.where(case.allowed, bias, -torch.inf).to(query.dtype)
    key, value = _of_heads(key, case.h), _of_heads(value, case.h)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def _kept(case: Any, weights: Tensor, rounded: Rounded) -> Tensor:
    return weights if case.keep is None else rounded(weights * case.keep.to(weights.dtype))


def _product(left: Tensor, right: Tensor, rounded: Rounded) -> Tensor:
    """A matrix product, rounded as often as it has terms."""
    product = rounded(left @ right)
    return product if rounded in (*EAGER, exactly) else rounded.add_rounding_of_sum(product, left, right)  # type: ignore[attr-defined]


def _given(x: Tensor, rounded: Rounded) -> Tensor:
    """A tensor of the caller's."""
    return x if rounded in (*EAGER, exactly) else rounded.take(x)  # type: ignore[attr-defined]


def _of_heads(x: Tensor, heads: int) -> Tensor:
    """Each query head with the key head that serves its group."""
    groups = x.shape[1]
    return x[:, [t * groups // heads for t in range(heads)]] if heads else x


def _per_head(weight: Tensor, axes: int) -> Tensor:
    return weight if weight.ndim < 2 else weight[(slice(None), *(None,) * axes)]


def _unit(x: Tensor, rounded: Rounded) -> Tensor:
    # bring the longest entry near one by a power of two, which is exact: squares must neither overflow nor vanish
    peak = x.detach().abs().amax(-1, keepdim=True).double()
    lift = torch.exp2(-torch.where(peak > 0, torch.log2(peak), 0.0).floor().clamp(-1020, 1020))
    x = (x.double() * lift).to(x.dtype)
    return rounded(x / rounded(torch.sqrt(rounded((x * x).sum(-1, keepdim=True)))))


def _sum(mass: Tensor, rounded: Rounded) -> Tensor:
    """The sum of each row, rounded as often as it has terms."""
    total = mass.sum(-1, keepdim=True)
    if rounded in (*EAGER, exactly):
        return total
    return rounded.add_rounding_of_sum(total, mass, mass.new_ones(mass.shape[-1], 1))  # type: ignore[attr-defined]


def _mass(case: Any, tensors: dict[str, Tensor], scores: Tensor, rounded: Rounded) -> tuple[Tensor, Tensor]:
    """Softmax and Sum step by step, so that each step can be disturbed: what is divided, and by what."""
    if case.weigh == "sum":
        mass = scores.masked_fill(~case.allowed, 0.0)
        total = _sum(mass, rounded)
    else:
        hidden = scores.masked_fill(~case.allowed, -torch.inf)
        peak = hidden.amax(-1, keepdim=True).detach()
        sink = None
        if "weigh.0" in tensors:
            sink = _given(tensors["weigh.0"], rounded).reshape(1, -1, 1, 1)
            peak = torch.maximum(peak, sink.detach())
        peak = torch.where(peak == -torch.inf, 0.0, peak)
        mass = rounded(torch.exp(rounded(hidden - peak)))
        total = _sum(mass, rounded)
        if sink is not None:
            total = total + rounded(torch.exp(rounded(sink - peak)))
    return mass, rounded(torch.where(total == 0, torch.inf, total))


def _entmax(scores: Tensor, allowed: Tensor, alpha: float, rounded: Rounded) -> Tensor:
    """p = [(alpha − 1)·score − tau]₊^{1/(alpha − 1)}: tau by bisection, its derivative by a step of Newton's method."""
    power = 1 / (alpha - 1)
    some = allowed.any(-1, keepdim=True)
    low = rounded((scores * (alpha - 1)).masked_fill(~allowed, -torch.inf))
    peak = low.amax(-1, keepdim=True).detach().masked_fill(~some, 0.0)
    low = rounded(low - peak)
    fixed = low.detach()
    left, right = torch.full_like(peak, -1.0), torch.zeros_like(peak)
    for _ in range(80 if scores.dtype == torch.float64 else 40):
        tau = (left + right) / 2
        enough = _grow(fixed - tau, power).sum(-1, keepdim=True) >= 1
        left, right = torch.where(enough, tau, left), torch.where(enough, right, tau)
    # Σp(low, tau) = 1 defines tau: a step of Newton from where it already holds leaves tau, and gives its derivative
    derivative = power * _grow(fixed - left, power - 1).sum(-1, keepdim=True)
    surplus = rounded(_grow(low - left, power).sum(-1, keepdim=True)) - 1
    tau = left + surplus / torch.where(derivative > 0, derivative, 1.0)
    return rounded(_grow(rounded(low - tau), power).masked_fill(~(allowed & some), 0.0))


def _grow(x: Tensor, power: float) -> Tensor:
    """max(x, 0)^power with no NaN in its derivative at zero; a power of zero counts the positive."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0) ** power, 0.0)
