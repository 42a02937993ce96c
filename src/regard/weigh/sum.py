"""Weights proportional to the scores themselves: the normaliser of linear attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import Online, Tile


@dataclass(frozen=True, repr=False)
class Sum(Online):
    """Normalisation of linear attention: the score / Σ scores of its row.

    >>> Sum()(torch.tensor([[1.0, 3.0]]))
    tensor([[0.2500, 0.7500]])

    Meant for scores that are not negative, such as `Feature()`. A row that sums to zero gives zeros.
    """

    def __call__(self, scores: Tensor, allowed: Tensor | None = None, tile: Tile | None = None) -> Tensor:
        if allowed is not None:
            scores = scores.masked_fill(~allowed, 0.0)
        return scores / _or_infinite(scores.sum(-1, keepdim=True))

    def begin(self, tile: Tile, like: Tensor) -> tuple[Tensor, Tensor]:
        zeros = like.new_zeros((*like.shape[:-1], 1))
        return zeros, zeros

    def step(self, scores: Tensor, allowed: Tensor | None, peak: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return (scores if allowed is None else scores.masked_fill_(~allowed, 0.0)), peak, None

    def finish(self, peak: Tensor, total: Tensor) -> Tensor:
        return _or_infinite(total)

    def recompute(self, scores: Tensor, stat: Tensor) -> Tensor:
        return scores.div_(stat)

    def gradient(self, weights: Tensor, grad: Tensor, mean: Tensor, stat: Tensor) -> Tensor:
        return grad.sub_(mean).div_(stat)


def _or_infinite(total: Tensor) -> Tensor:
    """The total, or +inf where it is no normal number: one over it would overflow, and there is nothing to share."""
    return total.masked_fill(total.abs() < torch.finfo(total.dtype).tiny, torch.inf)
