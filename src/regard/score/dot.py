"""The dot product of query and key: https://arxiv.org/abs/1706.03762."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Pair, Score, Sizes
from regard.core.pairs import Vjp


class Product(Pair):
    """A tile of scaled dot products, soft-capped by tanh where `cap` is given."""

    def __init__(self, scale: float = 1.0, cap: float | None = None) -> None:
        self.scale = scale
        self.cap = cap

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        scores = query @ key.transpose(-1, -2)
        if self.scale != 1.0:
            scores = scores * self.scale
        return scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        scores = query @ key.transpose(-1, -2)
        if self.scale != 1.0:
            scores.mul_(self.scale)
        return scores if self.cap is None else scores.div_(self.cap).tanh_().mul_(self.cap)

    def vjp(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Vjp]:
        scores = query @ key.transpose(-1, -2)
        if self.scale != 1.0:
            scores.mul_(self.scale)
        capped = None
        if self.cap is not None:
            capped = torch.tanh(scores / self.cap)
            scores = self.cap * capped

        def backward(grad: Tensor) -> tuple[Tensor | None, ...]:
            return _gradients(query, key, grad, self.scale, capped)

        return scores, backward

    def gradients(self, query: Tensor, key: Tensor, grad: Tensor, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients(query, key, grad, self.scale, None if self.cap is None else self(query, key) / self.cap)


def _gradients(query: Tensor, key: Tensor, grad: Tensor, scale: float, capped: Tensor | None) -> tuple[Tensor, Tensor]:
    if capped is not None:
        grad = grad * (1 - capped * capped)
    dq, dk = grad @ key, grad.transpose(-1, -2) @ query
    return (dq, dk) if scale == 1.0 else (dq * scale, dk * scale)


@dataclass(frozen=True, repr=False)
class Dot(Score):
    """The scaled dot product of query and key, by 1/√d unless told otherwise.

    >>> Dot(scale=1)(torch.ones(1, 2), torch.ones(3, 2))
    tensor([[2., 2., 2.]])

    `cap` bends scores softly into (-cap, cap): cap·tanh(score/cap), before any bias is added.
    """

    scale: float | None = None
    cap: float | None = None
    keeps_range = True

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(), cls(scale=0.7, cap=1.5)]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.cap is not None and not self.cap > 0:
            return f"Dot(cap=…) must be above zero, got {self.cap}."
        return None

    def _scale(self, query: Tensor) -> float:
        # a width of zero scores zero whatever the scale
        return self.scale if self.scale is not None else max(query.shape[-1], 1) ** -0.5

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        scores = (query @ key.transpose(-1, -2)) * self._scale(query)
        return scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        return query, key, Product(self._scale(query), self.cap)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        return (query, key, self._scale(query)) if self.cap is None else None

    @property
    def is_dot(self) -> bool:
        return self.cap is None
