"""Additive (MLP) scores, wᵀ·tanh(q + k): https://arxiv.org/abs/1409.0473.

tanh(q + k) = 1 − 2/(1 + e^{2q}e^{2k}): the exponentials move out of the n×m loop, and one division per feature is left.
That holds while both are ordinary numbers. Where q and k are small, 1 − 2/(1 + …) would lose their digits, and
tanh(q + k) = x/(x + 2) is used, with x = e^{2(q + k)} − 1 made of e^{2q} − 1 and e^{2k} − 1 (which in turn would cancel
for large ones). `prepare` looks which form fits, and takes the plain one where neither does.
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
from regard.core.pairs import Vjp

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
# below this, 1 − 2/(1 + …) would lose digits
_SMALL = 0.5
# numbers in a block of features: each core of two has half of both buffers in its L2 cache
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


class Factored(Plain):
    """The tanh score with one division per feature, in blocks whose buffers fit the cache."""

    footprint = 1

    def __init__(self, weight: Tensor, is_small: bool) -> None:
        self.tensors = (weight,)
        self.activation = "tanh"
        self.is_small = is_small
        self.depth = max(weight.shape[-1], 1)

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (weight,) = tensors
        scores = query.new_empty(*query.shape[:-1], key.shape[-2])
        flat, heads = scores.flatten(0, -3), _by_group(weight, query)
        for groups, rows, tanh in _blocks(query, key, self.is_small):
            torch.sum(tanh.mul_(heads[groups]), -1, out=flat[groups, rows])
        return scores

    def vjp(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Vjp]:
        def backward(grad: Tensor) -> tuple[Tensor | None, ...]:
            (weight,) = tensors
            flat = grad.flatten(0, -3)
            dquery, dkey = torch.empty_like(query).flatten(0, -3), torch.zeros_like(key).flatten(0, -3)
            dweight = flat.new_zeros(flat.shape[0], weight.shape[-1])
            buffer = query.new_empty(0)
            for groups, rows, tanh in _blocks(query, key, self.is_small):
                buffer = buffer if buffer.numel() >= tanh.numel() else query.new_empty(tanh.numel())
                part = flat[groups, rows]
                # by sums, which torch rounds pairwise; a matrix product would add one by one
                weighted = torch.mul(tanh, part.unsqueeze(-1), out=buffer[: tanh.numel()].view(tanh.shape))
                dweight[groups] += weighted.sum((1, 2))
                spread = torch.addcmul(part.unsqueeze(-1), weighted, tanh, value=-1, out=tanh)
                torch.sum(spread, -2, out=dquery[groups, rows])
                dkey[groups] += spread.sum(-3)
            factor = weight[:, None, :]
            dweight = dweight.view(*query.shape[:-2], weight.shape[-1]).sum_to_size(weight.shape)
            return dquery.view(query.shape).mul_(factor), dkey.view(key.shape).mul_(factor), dweight

        return self.fill(query, key, *tensors), backward

    def expression(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (weight,) = tensors
        return (_tanh(query, key, self.is_small) * weight[:, None, None, :]).sum(-1)

    def gradients(self, query: Tensor, key: Tensor, grad: Tensor, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = tensors
        tanh = _tanh(query, key, self.is_small)
        spread = grad.unsqueeze(-1) * (1 - tanh * tanh)
        factor = weight[:, None, :]
        dweight = (grad.unsqueeze(-1) * tanh).sum((-2, -3)).sum_to_size(weight.shape)
        return spread.sum(-2) * factor, spread.sum(-3) * factor, dweight


def _tanh(query: Tensor, key: Tensor, is_small: bool) -> Tensor:
    """tanh(q + k) of every pair and feature as one expression."""
    if not is_small:
        return 1 - 2 / (1 + torch.exp(2 * query).unsqueeze(-2) * torch.exp(2 * key).unsqueeze(-3))
    grown = _expm1(2 * query).unsqueeze(-2) * torch.exp(2 * key).unsqueeze(-3)
    grown = grown + _expm1(2 * key).unsqueeze(-3)
    return grown / (grown + 2)


def _expm1(x: Tensor) -> Tensor:
    """e^x − 1, of which torch's compiler makes just that on a CPU, so that small numbers lose their digits."""
    # Kahan's way: what is lost in e^x is lost in its logarithm too
    grown = torch.exp(x)
    return torch.where(grown == 1, x, (grown - 1) * x / torch.log(grown))


def _blocks(query: Tensor, key: Tensor, is_small: bool) -> Iterator[tuple[slice, slice, Tensor]]:
    """Blocks of tanh(q + k), shaped (groups, rows, keys, features) with the leading axes as groups.

    Each block overwrites the last one's memory.
    """
    left, right = 2 * query.flatten(0, -3), 2 * key.flatten(0, -3)
    if is_small:
        left, right, shift = torch.expm1(left), torch.exp(right), torch.expm1(right)
    else:
        left, right, shift = torch.exp(left), torch.exp(right), torch.ones_like(right)
    minus_two = left.new_tensor(-2.0)
    count, n, width = left.shape
    m = right.shape[1]
    rows = max(1, min(n, _BLOCK // max(m * width, 1)))
    groups = max(1, min(count, _BLOCK // max(rows * m * width, 1)))
    buffers = left.new_empty(2, groups * rows * m * width)
    for g in range(0, count, groups):
        for i in range(0, n, rows):
            a, b = left[g : g + groups, i : i + rows, None], right[g : g + groups, None]
            shape = (a.shape[0], a.shape[1], m, width)
            top, bottom = (buffer[: math.prod(shape)].view(shape) for buffer in buffers)
            torch.addcmul(shift[g : g + groups, None], a, b, out=top)
            below = torch.add(top, 2, out=bottom) if is_small else None
            tanh = torch.div(minus_two, top, out=top).add_(1) if below is None else top.div_(below)
            yield slice(g, g + groups), slice(i, i + rows), tanh


def _by_group(weight: Tensor, query: Tensor) -> Tensor:
    """The weight vector of each sequence and head, shaped (groups, 1, 1, features)."""
    return weight.expand(*query.shape[:-2], -1).flatten(0, -2)[:, None, None]


@dataclass(frozen=True, repr=False, eq=False)
class Additive(Score):
    """Additive (Bahdanau) score Σ_f w_f · tanh(q_f + k_f) of projected rows: `weight` is (d,), or (heads, d).

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

    @classmethod
    def start(cls, heads: int, width: int) -> dict[str, Tensor]:
        bound = width**-0.5
        return {"weight": torch.empty(heads, width).uniform_(-bound, bound)}

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
        if self.activation == "tanh":
            largest = _largest(query), _largest(key)
            # all(…), since NaN is smaller than nothing, and max would lose it
            if all(x < _SAFE.get(query.dtype, 0.0) for x in largest):
                return query, key, Factored(weight, is_small=all(x < _SMALL for x in largest))
        return query, key, Plain(weight, self.activation)


def _largest(x: Tensor) -> float:
    if x.numel() == 0:
        return 0.0
    low, high = torch.aminmax(x.detach())
    return max(-low.item(), high.item())
