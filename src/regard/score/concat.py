"""Scores of concatenated vectors, act(a·q + b·k), as in graph attention: https://arxiv.org/abs/1710.10903."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Pair, Score, Sizes
from regard.score.additive import ACTIVATIONS, name_activations


class Outer(Pair):
    """act(q + k) of one number per position."""

    def __init__(self, activation: str) -> None:
        self.activation = activation

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](query + key.transpose(-1, -2))


@dataclass(frozen=True, repr=False, eq=False)
class Concat(Score):
    """Concatenation score act(a·q + b·k), of graph attention (GAT): one weight vector for both, one activation.

    >>> Concat(torch.ones(2), torch.ones(1))(torch.ones(1, 2), torch.tensor([[1.0], [-7.0]]))
    tensor([[ 3., -1.]])

    `query_weight` is (d,) or (heads, d), `key_weight` likewise for the key's width; LeakyReLU has a slope of 0.2.
    """

    query_weight: Tensor
    key_weight: Tensor
    activation: str = "leaky_relu"
    any_widths = True

    @classmethod
    def samples(cls) -> Sequence[Self]:
        noise = torch.Generator().manual_seed(3)
        left, right = torch.randn(2, 2, 3, generator=noise, dtype=torch.float64)
        return [cls(left, right), cls(left[0].clone(), right[0].clone(), activation="tanh")]

    @classmethod
    def start(cls, heads: int, width: int) -> dict[str, Tensor]:
        bound = width**-0.5
        names = ("query_weight", "key_weight")
        return {name: torch.empty(heads, width).uniform_(-bound, bound) for name in names}

    def misfit(self, sizes: Sizes) -> str | None:
        if self.activation not in ACTIVATIONS:
            return f"Concat activation must be one of {name_activations()}, got {self.activation!r}."
        for name, weight, width in (("query", self.query_weight, sizes.d), ("key", self.key_weight, sizes.c)):
            if tuple(weight.shape) not in ((width,), (sizes.h, width)):
                return (
                    f"Concat {name}_weight must be ({width},) or (heads, {width})=({sizes.h}, {width}) for {name} of"
                    f" width {width}, got shape {tuple(weight.shape)}."
                )
        return None

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        left, right = _project(query, self.query_weight), _project(key, self.key_weight)
        return ACTIVATIONS[self.activation](left + right.transpose(-1, -2))

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        return _project(query, self.query_weight), _project(key, self.key_weight), Outer(self.activation)


def _project(x: Tensor, weight: Tensor) -> Tensor:
    return x @ (weight[:, None] if weight.ndim == 1 else weight[:, :, None])
