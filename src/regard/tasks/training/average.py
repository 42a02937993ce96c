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

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        """Come nearer: all but min(decay, (1 + steps) / (10 + steps)) of the way."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        own = [x.detach() for x in self.wide.parameters()]
        others = [x.detach().to(kept.dtype) for kept, x in zip(own, model.parameters(), strict=True)]
        torch._foreach_lerp_(own, others, 1 - decay)
        for kept, other in zip(self.wide.buffers(), model.buffers(), strict=True):
            kept.copy_(other)
        self.steps += 1

    @torch.no_grad()
    def settle(self) -> nn.Module:
        """`model`, as it is by now."""
        if self.model is not self.wide:
            self.model.load_state_dict(self.wide.state_dict())
        return self.model
