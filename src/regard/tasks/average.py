"""A moving average of weights, which often translates better than the weights themselves."""

from __future__ import annotations

import copy

import torch
from torch import nn


class Average:
    """A copy of a model whose weights follow it, each step a little: the young average faster than the old.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = Average(model, decay=0.5)
    >>> _ = nn.init.constant_(model.weight, 3.0), nn.init.constant_(average.model.weight, 0.0)
    >>> average.follow(model)
    >>> round(average.model.weight.item(), 4)
    2.7
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.steps = copy.deepcopy(model).requires_grad_(False), decay, 0

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        """Come nearer: all but min(decay, (1 + steps) / (10 + steps)) of the way."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(list(self.model.parameters()), [x.detach() for x in model.parameters()], 1 - decay)
        for own, other in zip(self.model.buffers(), model.buffers(), strict=True):
            own.copy_(other)
        self.steps += 1
