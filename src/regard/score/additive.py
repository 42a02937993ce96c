"""Additive (MLP) scores, wᵀ·tanh(q + k): https://arxiv.org/abs/1409.0473.

With A = e^{2q} and B = e^{2k}, tanh(q + k) = 1 − 2/(1 + AB): the exponentials move out of the n×m loop and one
reciprocal per feature is left. That holds while A and B are ordinary numbers; `prepare` looks, and takes the plain form
where they are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from regard.core import Pair, Score, Sizes
from regard.core.terms import Pull

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.2),
}

# e^{2x} and its inverse are normal numbers, with room to spare, while |x| stays below this
_SAFE = {torch.float32: 40.0, torch.float64: 340.0}
# numbers in a block of features: 1 MiB of float32, the L2 cache of a core
_BLOCK = 2**18


def name_activations() -> str:
    """The activations by name, for messages."""
    return ", ".join(repr(name) for name in ACTIVATIONS)


class Plain(Pair):
    """Σ_f w_f · act(q_f + k_f), features last."""

    def __init__(self, weight: Tensor, activation: str) -> None:
        self.tensors = (weight,)
        self.activation = activation
        self.footprint = self.depth = max(weight.shape[-1], 1)

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (weight,) = tensors
        mixed = ACTIVATIONS[self.activation](query.unsqueeze(-2) + key.unsqueeze(-3))
        return (mixed * weight[:, None, None, :]).sum(-1)


class Reciprocal(Plain):
    """The tanh score by one reciprocal per feature, block after block in one buffer that fits the cache."""

    footprint = 1

    def __init__(self, weight: Tensor) -> None:
        self.tensors = (weight,)
        self.activation = "tanh"
        self.depth = max(weight.shape[-1], 1)

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (weight,) = tensors
        scores = query.new_empty(*query.shape[:-1], key.shape[-2])
        flat, heads = scores.flatten(0, -3), _by_group(weight, query)
        for groups, rows, grown in _grow(query, key):
            torch.sum(torch.div(heads[groups], grown, out=grown), -1, out=flat[groups, rows])
        return scores.mul_(-2).add_(weight.sum(-1)[:, None, None])

    def pull(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Pull]:
        def back(grad: Tensor) -> tuple[Tensor | None, ...]:
            (weight,) = tensors
            flat = grad.flatten(0, -3)
            dquery, dkey = torch.empty_like(query).flatten(0, -3), torch.zeros_like(key).flatten(0, -3)
            dweight = flat.sum((-1, -2))[:, None].repeat(1, weight.shape[-1])
            one = query.new_ones(())
            for groups, rows, grown in _grow(query, key):
                # r = 1/(1 + AB): tanh is 1 − 2r, and its slope 4r(1 − r)
                halves, part = torch.div(one, grown, out=grown), flat[groups, rows]
                dweight[groups] -= 2 * (part.flatten(1).unsqueeze(1) @ halves.flatten(1, 2)).squeeze(1)
                spread = halves.addcmul_(halves, halves, value=-1).mul_(part.unsqueeze(-1))
                torch.sum(spread, -2, out=dquery[groups, rows])
                dkey[groups] += spread.sum(-3)
            slope = 4 * weight[:, None, :]
            dweight = dweight.view(*query.shape[:-2], -1).sum_to_size(weight.shape)
            return dquery.view(query.shape).mul_(slope), dkey.view(key.shape).mul_(slope), dweight

        return self.fill(query, key, *tensors), back

    def expression(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (weight,) = tensors
        grown = torch.exp(2 * query).unsqueeze(-2) * torch.exp(2 * key).unsqueeze(-3)
        return weight.sum(-1)[:, None, None] - ((2 * weight)[:, None, None, :] / (1 + grown)).sum(-1)

    def slopes(self, query: Tensor, key: Tensor, grad: Tensor, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = tensors
        halves = 1 / (1 + torch.exp(2 * query).unsqueeze(-2) * torch.exp(2 * key).unsqueeze(-3))
        spread = grad.unsqueeze(-1) * (halves - halves * halves)
        scale = 4 * weight[:, None, :]
        dw = (grad.unsqueeze(-1) * (1 - 2 * halves)).sum((-2, -3)).sum_to_size(weight.shape)
        return spread.sum(-2) * scale, spread.sum(-3) * scale, dw


def _grow(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Blocks of 1 + e^{2q}e^{2k}, shaped (groups, rows, keys, features) with the leading axes as groups.

    Each block overwrites the last one's memory.
    """
    left, right = (torch.exp(2 * x.flatten(0, -3)) for x in (query, key))
    count, n, width = left.shape
    m = right.shape[1]
    rows = max(1, min(n, _BLOCK // max(m * width, 1)))
    groups = max(1, min(count, _BLOCK // max(rows * m * width, 1)))
    buffer, one = left.new_empty(groups * rows * m * width), left.new_ones(())
    for g in range(0, count, groups):
        for i in range(0, n, rows):
            a, b = left[g : g + groups, i : i + rows, None], right[g : g + groups, None]
            shape = (a.shape[0], a.shape[1], m, width)
            block = torch.addcmul(one, a, b, out=buffer[: math.prod(shape)].view(shape))
            yield slice(g, g + groups), slice(i, i + rows), block


def _by_group(weight: Tensor, query: Tensor) -> Tensor:
    """The weight vector of each sequence and head, shaped (groups, 1, 1, features)."""
    return weight.expand(*query.shape[:-2], -1).flatten(0, -2)[:, None, None]


@dataclass(frozen=True, repr=False, eq=False)
class Additive(Score):
    """Σ_f w_f · tanh(q_f + k_f) on projected queries and keys: `weight` is (d,), or (heads, d).

    >>> Additive(torch.ones(2))(torch.zeros(1, 2), torch.tensor([[0.0, 0.0], [9.0, 9.0]]))
    tensor([[0.0000, 2.0000]])
    """

    weight: Tensor
    activation: str = "tanh"

    @classmethod
    def samples(cls) -> Sequence[Self]:
        noise = torch.Generator().manual_seed(2)
        weight = torch.randn(2, 3, generator=noise, dtype=torch.float64)
        return [cls(weight[0].clone()), cls(weight), cls(weight, activation="silu")]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.activation not in ACTIVATIONS:
            return f"Additive activation must be one of {name_activations()}, got {self.activation!r}."
        if tuple(self.weight.shape) in ((sizes.d,), (sizes.h, sizes.d)):
            return None
        return (
            f"Additive weight must be (d,)=({sizes.d},) or (heads, d)=({sizes.h}, {sizes.d}) for query d={sizes.d},"
            f" got shape {tuple(self.weight.shape)}."
        )

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        weight = self.weight if self.weight.ndim == 1 else self.weight[:, None, None, :]
        return (ACTIVATIONS[self.activation](query.unsqueeze(-2) + key.unsqueeze(-3)) * weight).sum(-1)

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        weight = self.weight if self.weight.ndim == 2 else self.weight[None]
        if self.activation == "tanh" and _small(query) and _small(key):
            return query, key, Reciprocal(weight)
        return query, key, Plain(weight, self.activation)


def _small(x: Tensor) -> bool:
    if x.numel() == 0:
        return False
    low, high = torch.aminmax(x.detach())
    return max(-low.item(), high.item()) < _SAFE.get(x.dtype, 0.0)
