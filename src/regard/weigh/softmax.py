"""Softmax, online: one running maximum and one running sum per row, which make up its logsumexp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Online, Sizes, Tile
from regard.core.biases import reduce_to


@dataclass(frozen=True, repr=False, eq=False)
class Softmax(Online):
    """Softmax of a row: e^score / Σ e^score.

    >>> Softmax()(torch.tensor([[0.0, 0.0]]))
    tensor([[0.5000, 0.5000]])

    `sink` is a learned logit (one number, or one per head) that takes its share of a row and gives nothing back: a row
    then sums to less than one, and may attend to nothing (https://arxiv.org/abs/2309.17453).
    """

    sink: Tensor | None = None
    num_stats = 2
    has_signs = False

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(), cls(sink=torch.tensor([0.3, -0.8], dtype=torch.float64))]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.sink is None or self.sink.numel() == 1 or tuple(self.sink.shape) == (sizes.h,):
            return None
        return f"Softmax sink must be one logit or one per head ({sizes.h},), got shape {tuple(self.sink.shape)}."

    def _logits(self, tile: Tile) -> Tensor | None:
        """The sink's logits of the tile's heads, shaped (h or 1, 1, 1)."""
        if self.sink is None:
            return None
        logits = self.sink.reshape(-1, 1, 1)
        return logits if logits.shape[0] == 1 else logits[tile.h.start : tile.h.stop]

    def __call__(self, scores: Tensor, allowed: Tensor | None = None, tile: Tile | None = None) -> Tensor:
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        if self.sink is not None:
            logits = self.sink.reshape(-1, 1, 1) if tile is None else self._logits(tile)
            assert logits is not None
            logits = (logits if scores.ndim > 2 else logits[0]).expand(*scores.shape[:-1], 1)
            return torch.softmax(torch.cat([scores, logits.to(scores.dtype)], -1), -1)[..., :-1]
        empty = (scores == -torch.inf).all(-1, keepdim=True)
        return torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)

    def begin(self, tile: Tile, like: Tensor) -> tuple[Tensor, Tensor]:
        shape = (*like.shape[:-1], 1)
        logits = self._logits(tile)
        if logits is None:
            return like.new_full(shape, -torch.inf), like.new_zeros(shape)
        # the sink is a key that was seen before all others
        return logits.to(like.dtype).expand(shape).clone(), like.new_ones(shape)

    def step(self, scores: Tensor, allowed: Tensor | None, peak: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        if allowed is not None:
            scores = scores.masked_fill_(~allowed, -torch.inf)
        risen = torch.maximum(peak, scores.amax(-1, keepdim=True))
        # a row with nothing yet: -inf minus -inf would be NaN where e^-inf = 0 is meant
        base = torch.where(risen == -torch.inf, 0.0, risen)
        return scores.sub_(base).exp_(), risen, torch.exp(peak - base)

    def finish(self, peak: Tensor, total: Tensor) -> Tensor:
        # peak and total apart: in peak + log(total) a large peak would swallow the total
        return torch.where(total == 0, torch.inf, torch.cat([peak, total], -1))

    def recompute(self, scores: Tensor, stat: Tensor) -> Tensor:
        return scores.sub_(stat[..., :1]).exp_().div_(stat[..., 1:])

    def gradient(self, weights: Tensor, grad: Tensor, mean: Tensor, stat: Tensor) -> Tensor:
        return grad.sub_(mean).mul_(weights)

    def tensor_gradients(self, tile: Tile, mean: Tensor, stat: Tensor) -> tuple[Tensor, ...]:
        if self.sink is None:
            return ()
        logits = self._logits(tile)
        assert logits is not None
        share = torch.exp(logits.to(stat.dtype) - stat[..., :1]) / stat[..., 1:]
        grad = reduce_to(-share * mean, torch.Size((1, logits.shape[0], 1, 1))).flatten()
        if logits.shape[0] == self.sink.numel():
            return (grad.view(self.sink.shape),)
        whole = grad.new_zeros(self.sink.shape)
        whole[tile.h.start : tile.h.stop] = grad
        return (whole,)
