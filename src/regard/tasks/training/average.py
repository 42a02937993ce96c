"""Exponential moving average of the weights (EMA), which often generalises better than the weights themselves."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class MovingAverage:
    """An exponential moving average (EMA) of a model's weights; its decay grows from 0.1 up to `decay`.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = MovingAverage(model, decay=0.5)
    >>> _ = nn.init.constant_(model.weight, 3.0), nn.init.constant_(average.model.weight, 0.0)
    >>> average.update()
    >>> round(average.model.weight.item(), 4)
    2.7

    `wide` has at least float32, since steps so small round away in bfloat16; `model` has the model's own dtype, and is
    `wide` where that is as wide.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.steps = copy.deepcopy(model).requires_grad_(False), decay, 0
        kinds = [torch.promote_types(x.dtype, torch.float32) for x in self.model.parameters()]
        self.wide = self.model
        if kinds != [x.dtype for x in self.model.parameters()]:
            self.wide = copy.deepcopy(self.model)
            for x, kind in zip(self.wide.parameters(), kinds, strict=True):
                x.data = x.data.to(kind)
        # listed once: to walk through all modules at every step takes longer than the sums
        self._weights: list[list[Tensor]] = [list(one.parameters()) for one in (self.wide, model)]
        modules = zip(self.wide.modules(), model.modules(), strict=True)
        self._holders = [(kept, other) for kept, other in modules if other._buffers]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the model, by a decay of min(decay, (1 + steps) / (10 + steps))."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        own, others = self._weights
        if self.model is not self.wide:
            others = [x.to(kept.dtype) for kept, x in zip(own, others, strict=True)]
        torch._foreach_lerp_(own, others, 1 - decay)
        for holder, other in self._holders:
            for kept, x in zip(holder.buffers(recurse=False), other.buffers(recurse=False), strict=True):
                kept.copy_(x)
        self.steps += 1

    @torch.no_grad()
    def read(self) -> nn.Module:
        """`model` with the average as it is by now."""
        if self.model is not self.wide:
            self.model.load_state_dict(self.wide.state_dict())
        return self.model
