"""Weights that are the positive part of the scores: https://arxiv.org/abs/2309.08586."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Pointwise, Sizes


@dataclass(frozen=True, repr=False)
class Relu(Pointwise):
    """ReLU, scale · max(score, 0)^power: rows are not made to sum to one.

    >>> Relu()(torch.tensor([[-1.0, 2.0]]))
    tensor([[0., 2.]])

    Published models use scale = 1 / number of keys; power=2 is the squared ReLU.
    """

    power: int = 1
    scale: float = 1.0

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(), cls(power=2, scale=0.25)]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.power in (1, 2, 3):
            return None
        return f"Relu power must be 1, 2 or 3, got {self.power}."

    def weight(self, scores: Tensor) -> Tensor:
        weights = torch.relu(scores) ** self.power if self.power != 1 else torch.relu(scores)
        return weights if self.scale == 1.0 else weights * self.scale

    def derivative(self, scores: Tensor, weights: Tensor) -> Tensor:
        if self.power == 1:
            # NaN is not below zero, nor does torch's own derivative stop it
            return (~(scores <= 0)).to(scores.dtype) * self.scale
        return torch.relu(scores) ** (self.power - 1) * (self.power * self.scale)
