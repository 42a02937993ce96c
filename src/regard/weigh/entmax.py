"""Sparse softmaxes: weights that are exactly zero for low scores (https://arxiv.org/abs/1905.05702).

alpha-entmax is p = [(alpha − 1)·score − tau]₊^{1/(alpha − 1)} with the tau that makes the row sum to one. For an alpha
of 2 (sparsemax) and 1.5, tau follows exactly from the sorted row; below 2 it is found by bisection. Above 2 the power
is a root, and a weight near the threshold would need more digits of tau than there are: there the least weight is
found, from which all others follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Row, Sizes, Tile

# of Newton's rule, which needs about ten
_STEPS = 60


@dataclass(frozen=True, repr=False)
class Entmax(Row):
    """alpha-entmax: softmax at alpha → 1, sparsemax at 2, sparser beyond.

    >>> Entmax()(torch.tensor([[1.0, 0.9, -5.0]]))
    tensor([[0.5353, 0.4647, 0.0000]])
    """

    alpha: float = 1.5
    has_signs = False

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(), cls(alpha=1.3)]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.alpha == float("inf"):
            return "Entmax alpha must be finite, got inf: for the best key alone use Hard()."
        if self.alpha > 1:
            return None
        return f"Entmax alpha must be above 1, got {self.alpha}: for alpha=1 use Softmax()."

    def solve(self, scores: Tensor, tile: Tile) -> Tensor:
        peak = scores.amax(-1, keepdim=True)
        empty = peak == -torch.inf
        if self.alpha > 2:
            # a peak of +inf or NaN has no weights, and shows it
            weights = _find_least(scores, self.alpha - 1).masked_fill_(~(peak < torch.inf), torch.nan)
            return weights.masked_fill_(empty, 0.0)
        # distances below the peak, scaled as the formula has them; NaN and +inf stay visible
        low = (scores - torch.where(empty, 0.0, peak)) * (self.alpha - 1)
        if self.alpha == 2:
            weights = low.sub_(_refine(low, _sparsemax_threshold(low), 1)).clamp_(min=0)
        elif self.alpha == 1.5:
            weights = low.sub_(_refine(low, _entmax15_threshold(low), 2)).clamp_(min=0).square_()
        else:
            weights = _bisect(low, 1 / (self.alpha - 1))
        return weights.masked_fill_(empty, 0.0)

    def gradient(self, weights: Tensor, grad: Tensor) -> Tensor:
        if self.alpha > 2:
            # powers below zero: small weights lean so far that float32 would lose their mean
            return self._gradient(weights.double(), grad.double()).to(grad.dtype)
        return self._gradient(weights, grad)

    def _gradient(self, weights: Tensor, grad: Tensor) -> Tensor:
        positive = weights > 0
        # 0^negative is inf: lift the zeros before the power, and put them back after; NaN stays
        lifted = torch.where(positive, weights, 1.0)
        support = torch.where(positive, lifted ** (2 - self.alpha), weights)
        total = support.sum(-1, keepdim=True)
        mean = (support * grad).sum(-1, keepdim=True) / torch.where(total == 0, 1.0, total)
        return support * (grad - mean)


@dataclass(frozen=True, repr=False)
class Sparsemax(Entmax):
    """The projection of scores onto the simplex: a linear, sparse softmax (https://arxiv.org/abs/1602.02068).

    >>> Sparsemax()(torch.tensor([[1.0, 0.5, -5.0]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """

    alpha: float = 2.0

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls()]

    def misfit(self, sizes: Sizes) -> str | None:
        return None if self.alpha == 2 else f"Sparsemax has an alpha of 2, got {self.alpha}: use Entmax({self.alpha})."


def _sorted_sums(low: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The row sorted downwards with -inf made harmless, its ranks 1…m, and which entries are real.

    In float64: a running sum in float32 adds one by one, and its error grows with the row.
    """
    ranked = low.sort(-1, descending=True).values.double()
    real = ranked != -torch.inf
    ranks = torch.arange(1, low.shape[-1] + 1, device=low.device, dtype=torch.float64)
    return ranked.masked_fill(~real, 0.0), ranks, real


def _sparsemax_threshold(low: Tensor) -> Tensor:
    ranked, ranks, real = _sorted_sums(low)
    taus = (ranked.cumsum(-1) - 1) / ranks
    return _last(taus, (ranked > taus) & real)


def _entmax15_threshold(low: Tensor) -> Tensor:
    ranked, ranks, real = _sorted_sums(low)
    mean = ranked.cumsum(-1) / ranks
    spread = (ranked * ranked).cumsum(-1) / ranks - mean * mean
    taus = mean - ((1 - ranks * spread) / ranks).clamp(min=0).sqrt()
    return _last(taus, (ranked >= taus) & real)


def _refine(low: Tensor, tau: Tensor, power: int) -> Tensor:
    """The threshold after a step of Newton's rule, where running sums in float64 are no more exact than the row."""
    if low.dtype != torch.float64:
        return tau
    gap = (low - tau).clamp_(min=0)
    rate = (gap > 0).sum(-1, keepdim=True) if power == 1 else 2 * gap.sum(-1, keepdim=True)
    return tau + ((gap**power).sum(-1, keepdim=True) - 1) / torch.where(rate > 0, rate, 1)


def _last(taus: Tensor, inside: Tensor) -> Tensor:
    """The threshold at the last rank that lies inside the support."""
    count = inside.sum(-1, keepdim=True).clamp_(min=1)
    return taus.gather(-1, count - 1)


def _bisect(low: Tensor, power: float) -> Tensor:
    """Weights by bisection: the peak's entry is 0, so tau lies in [-1, -m^(-1/power)]."""

    def weigh(tau: Tensor) -> Tensor:
        return (low - tau).clamp_(min=0) ** power

    left = low.new_full((*low.shape[:-1], 1), -1.0)
    width = 1.0 - float(low.shape[-1]) ** (-1 / power)
    # each step halves the bracket: stop where float64 (or float32) can no longer tell
    for _ in range(60 if low.dtype == torch.float64 else 30):
        width /= 2
        middle = left + width
        left = torch.where(weigh(middle).sum(-1, keepdim=True) >= 1, middle, left)
    # a last step by Newton's rule in float64: near tau, what float32 cannot tell is a large part of a weight
    exact = low.double()
    gap = (exact - left).clamp_(min=0)
    rate = torch.where(gap > 0, gap, 1.0) ** (power - 1) * (gap > 0) * power
    tau = left + ((gap**power).sum(-1, keepdim=True) - 1) / rate.sum(-1, keepdim=True)
    weights = exact.sub_(tau).clamp_(min=0) ** power
    return (weights / weights.sum(-1, keepdim=True)).to(low.dtype)


def _find_least(scores: Tensor, steep: float) -> Tensor:
    """Weights for an alpha above 2, `steep` = alpha − 1: each is (least^steep + steep·(score − least score))^{1/steep}.

    A row's sum is convex in its least weight and rises at least as fast: Newton's rule comes down to it from above.
    """
    exact = scores.double()
    ranked = exact.sort(-1, descending=True).values
    count = (ranked > -torch.inf).sum(-1, keepdim=True).clamp_(min=1)

    def measure(rank: Tensor) -> Tensor:
        """How far each score lies above the one at a rank, as the formula has it; nothing where it lies below."""
        return ((ranked - ranked.gather(-1, rank - 1)) * steep).clamp_(min=0)

    # the support is as large as leaves room for its last one
    size = torch.ones_like(count)
    step = 1 << int(scores.shape[-1]).bit_length()
    while step := step >> 1:
        larger = torch.minimum(size + step, count)
        size = torch.where((measure(larger) ** (1 / steep)).sum(-1, keepdim=True) < 1, larger, size)
    gaps = measure(size)
    inside = torch.arange(1, scores.shape[-1] + 1, device=scores.device) <= size
    least = 1.0 / size.double()
    for _ in range(_STEPS):
        shares = _raise(gaps, least, steep)
        surplus = torch.where(inside, shares, 0.0).sum(-1, keepdim=True) - 1
        rate = torch.where(inside, (least / shares) ** (steep - 1), 0.0).sum(-1, keepdim=True)
        lower = (least - surplus / rate).clamp_(min=0)
        if torch.equal(lower, least):
            break
        least = lower
    apart = (exact - ranked.gather(-1, size - 1)) * steep
    weights = torch.where(apart >= 0, _raise(apart.clamp(min=0), least, steep), 0.0)
    return (weights / weights.sum(-1, keepdim=True)).to(scores.dtype)


def _raise(gaps: Tensor, least: Tensor, steep: float) -> Tensor:
    """(least^steep + gap)^{1/steep}; the least itself where there is no gap, since its power may be no number."""
    return torch.where(gaps > 0, (least**steep + gaps) ** (1 / steep), least)
