"""The arithmetic of one tile, forward and backward, as functions of tensors: run as they are, or compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import Online, Pair, Pointwise, Row, Tile

Extras = tuple[Tensor | None, Tensor | None, Tensor | None]  # bias, allowed, keep


@dataclass(frozen=True)
class Steps:
    """The functions a walk over tiles calls; `compiled` puts compiled ones in their place."""

    online: Callable[..., tuple[Tensor, Tensor, Tensor]]
    pointwise: Callable[..., Tensor]
    row: Callable[..., Tensor]
    backward: Callable[..., tuple[Tensor, Tensor, tuple[Tensor | None, ...]]]
    # whether `backward` replays the random numbers that a user's function drew in the forward pass
    replays: bool = True


def score(
    pair: Pair, query: Tensor, key: Tensor, tensors: tuple[Tensor, ...], bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """The tile's scores, as a tensor that the caller may overwrite."""
    scores = pair.fill(query, key, *tensors).to(dtype)
    return scores if bias is None else scores.add_(bias)


def online(
    pair: Pair, weigh: Online, query: Tensor, key: Tensor, value: Tensor, tensors: tuple[Tensor, ...], extras: Extras,
    peak: Tensor, total: Tensor, out: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Running maximum (peak), sum (total) and unnormalised output after one more tile of keys."""
    bias, allowed, keep = extras
    mass, peak, decay = weigh.step(score(pair, query, key, tensors, bias, value.dtype), allowed, peak)
    gained = mass.sum(-1, keepdim=True)
    added = (mass if keep is None else mass * keep) @ value
    if decay is None:
        return peak, total + gained, out + added
    return peak, total * decay + gained, out * decay + added


def pointwise(
    pair: Pair, weigh: Pointwise, query: Tensor, key: Tensor, value: Tensor, tensors: tuple[Tensor, ...],
    extras: Extras, out: Tensor,
) -> Tensor:  # fmt: skip
    bias, allowed, keep = extras
    weights = weigh.weight(score(pair, query, key, tensors, bias, value.dtype))
    return out + zero_out(weights, allowed, keep) @ value


def row(
    pair: Pair, weigh: Row, query: Tensor, key: Tensor, value: Tensor, tensors: tuple[Tensor, ...], extras: Extras,
    tile: Tile,
) -> Tensor:  # fmt: skip
    bias, allowed, keep = extras
    scores = score(pair, query, key, tensors, bias, value.dtype)
    weights = weigh.solve(mask_scores(scores, allowed), tile)
    return zero_out(weights, None, keep) @ value


def backward(
    pair: Pair, weigh: Online | Pointwise | Row, query: Tensor, key: Tensor, value: Tensor, tensors: tuple[Tensor, ...],
    extras: Extras, grad: Tensor, mean: Tensor | None, stat: Tensor | None, tile: Tile | None,
) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...]]:  # fmt: skip
    """Gradients of one tile: of the values, of the scores, and of query, key and the pair's tensors."""
    bias, allowed, keep = extras
    scores, vjp = pair.vjp(query, key, *tensors)
    # vjp may still need the scores as they are: work on a copy
    scores = scores.to(value.dtype, copy=True) if bias is None else scores.to(value.dtype) + bias
    dvalue, dscores = gradients(weigh, scores, value, allowed, keep, grad, mean, stat, tile)
    return dvalue, dscores, vjp(dscores.to(query.dtype))


def gradients(
    weigh: Online | Pointwise | Row, scores: Tensor, value: Tensor, allowed: Tensor | None, keep: Tensor | None,
    grad: Tensor, mean: Tensor | None, stat: Tensor | None, tile: Tile | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of values and scores, from the scores and the gradient of the output."""
    dweights = grad @ value.transpose(-1, -2)
    if keep is not None:
        dweights = dweights * keep
    if isinstance(weigh, Online):
        assert stat is not None
        weights = zero_out(weigh.recompute(scores, stat), allowed, None)
        if mean is None:
            # the tile is the whole row: its own weights say the mean more exactly than the rounded output does
            shown = dweights if allowed is None else dweights.masked_fill(~allowed, 0.0)
            mean = (weights * shown).sum(-1, keepdim=True)
        dscores = weigh.gradient(weights, dweights, mean, stat)
    elif isinstance(weigh, Pointwise):
        raw = weigh.weight(scores)
        dscores = dweights * weigh.derivative(scores, raw)
        weights = zero_out(raw, allowed, None)
    else:
        assert tile is not None
        weights = weigh.solve(mask_scores(scores, allowed), tile)
        dscores = weigh.gradient(weights, dweights)
    dvalue = zero_out(weights, None, keep).transpose(-1, -2) @ grad
    return dvalue, dscores if allowed is None else dscores.masked_fill(~allowed, 0.0)


def mask_scores(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """The scores with masked ones set to −inf, in place."""
    return scores if allowed is None else scores.masked_fill_(~allowed, -float("inf"))


def zero_out(weights: Tensor, allowed: Tensor | None, keep: Tensor | None) -> Tensor:
    """The weights with masked and dropped ones set to zero."""
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    return weights if keep is None else weights * keep


EAGER = Steps(online, pointwise, row, backward)
