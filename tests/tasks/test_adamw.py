"""AdamW and clipping beside torch's own."""

from __future__ import annotations

import copy

import torch
from torch import nn

from regard.tasks.training.adamw import AdamW, clip_gradients

OPTIONS = {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.1}


def test_steps_are_torchs_to_the_bit_where_gradients_come_and_go_and_a_state_is_loaded():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    theirs = copy.deepcopy(ours)

    def make(kind, model):
        first, second = (list(layer.parameters()) for layer in model)
        return kind([{"params": first}, {"params": second, "weight_decay": 0.0}], **OPTIONS)

    optimizers = make(AdamW, ours), make(torch.optim.AdamW, theirs)
    for step in range(8):
        if step == 6:
            # as a resumed run does
            fresh = make(AdamW, ours)
            fresh.load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
            optimizers = fresh, optimizers[1]
        # now and then the second layer is not called
        rows, has_all = torch.randn(5, 3), step not in (0, 4)
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            (model if has_all else model[0])(rows).pow(2).sum().backward()
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (step + 1)
        clip_gradients([x.grad for x in ours.parameters() if x.grad is not None], 1.0)
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(one, other)
    for one, other in zip(*(x.state_dict()["state"].values() for x in optimizers), strict=True):
        for name, value in other.items():
            assert torch.equal(one[name], value)
