"""Weights that are the sigmoid of the scores: https://arxiv.org/abs/2409.04431."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Pointwise


@dataclass(frozen=True, repr=False)
class Sigmoid(Pointwise):
    """Elementwise sigmoid, 1/(1 + e^−(score + shift)): rows are not made to sum to one.

    >>> Sigmoid()(torch.tensor([[0.0]]))
    tensor([[0.5000]])

    Published models use shift = −log(number of keys), so that a row starts with a sum near one.
    """

    shift: float = 0.0
    has_signs = False

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(), cls(shift=-1.5)]

    def weight(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(scores + self.shift)

    def derivative(self, scores: Tensor, weights: Tensor) -> Tensor:
        return weights * (1 - weights)
