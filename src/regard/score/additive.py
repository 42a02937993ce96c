"""Additive (MLP) scores, wᵀ·tanh(q + k): https://arxiv.org/abs/1409.0473.

With A = e^{2q} and B = e^{2k}, tanh(q + k) = 1 − 2/(1 + AB): the exponentials move out of the n×m loop and one
reciprocal per feature is left. That holds while A and B are ordinary numbers; `prepare` looks, and takes the plain form
where they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def name_activations() -> str:
    """The activations by name, for messages."""
    return ", ".join(repr(name) for name in ACTIVATIONS)


class Plain(Pair):
    """Σ_f w_f · act(q_f + k_f), features last."""

    def __init__(self, weight: Tensor, activation: str) -> None:
        self.tensors = (weight,)
        self.activation = activation
        self.footprint = weight.shape[-1]

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (weight,) = tensors
        mixed = ACTIVATIONS[self.activation](query.unsqueeze(-2) + key.unsqueeze(-3))
        return (mixed * weight[:, None, None, :]).sum(-1)


class Reciprocal(Plain):
    """The tanh score by one reciprocal per feature, in a buffer that all tiles share."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight, "tanh")
        self._scratch: Tensor | None = None

    def _halves(self, query: Tensor, key: Tensor) -> Tensor:
        """r = 1/(1 + e^{2q}e^{2k}), so that tanh = 1 − 2r and its slope is 4r(1 − r)."""
        left, right = torch.exp(2 * query).unsqueeze(-2), torch.exp(2 * key).unsqueeze(-3)
        shape = torch.broadcast_shapes(left.shape, right.shape)
        size = shape.numel()
        if self._scratch is None or self._scratch.numel() < size:
            self._scratch = query.new_empty(size)
        halves = torch.mul(left, right, out=self._scratch[:size].view(shape))
        return halves.add_(1).reciprocal_()

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        return _weighted(self._halves(query, key), tensors[0])

    def pull(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Pull]:
        (weight,) = tensors
        halves = self._halves(query, key)

        def back(grad: Tensor) -> tuple[Tensor | None, ...]:
            heads = tuple(range(1, grad.ndim - 2)) if weight.shape[0] == 1 else ()
            flat = grad.sum((0, *heads, -1, -2))
            dw = flat.reshape(-1, 1) - 2 * torch.einsum("bhij,bhijf->hf", grad, halves).sum_to_size(weight.shape)
            spread = halves.addcmul_(halves, halves, value=-1).mul_(grad.unsqueeze(-1))
            scale = 4 * weight[:, None, :]
            return spread.sum(-2).mul_(scale), spread.sum(-3).mul_(scale), dw

        return _weighted(halves, weight), back

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


def _weighted(halves: Tensor, weight: Tensor) -> Tensor:
    """Σ_f w_f (1 − 2 r_f), one matrix product per head."""
    if weight.shape[0] == 1:
        summed = (halves.view(-1, halves.shape[-1]) @ weight[0]).view(halves.shape[:-1])
    else:
        summed = torch.einsum("bhijf,hf->bhij", halves, weight)
    return summed.mul_(-2).add_(weight.sum(-1)[:, None, None])


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
        weight = self.weight.reshape(-1, self.weight.shape[-1])
        if self.activation == "tanh" and _small(query) and _small(key):
            return query, key, Reciprocal(weight)
        return query, key, Plain(weight, self.activation)


def _small(x: Tensor) -> bool:
    if x.numel() == 0:
        return False
    low, high = torch.aminmax(x.detach())
    return max(-low.item(), high.item()) < _SAFE.get(x.dtype, 0.0)
