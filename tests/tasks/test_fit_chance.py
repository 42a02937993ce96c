"""Runs that resume to the bit where batches are made by chance, and where a part of the model learns later."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.tasks.line import Line, Points, Walk, assert_same, stop_at

pytest.importorskip("lightning")

SETTINGS = {"max_steps": 12, "epochs": 99, "validate_every": 4, "lr": 0.1, "schedule": "linear"}
AT = pytest.mark.parametrize("at", [1, 3, 8])


class Noisy(Walk):
    """Batches with random numbers of torch's own, as pictures are cropped and turned."""

    def walk(self, epoch=0, start=0):
        return (Points(x + torch.randn_like(x), y) for x, y in super().walk(epoch, start))


class Augmented(Line):
    def __init__(self, **options):
        super().__init__(dropout=0.3, **options)
        self.walk = Noisy((5, 2, 4, 3, 6))


class Late(nn.Module):
    """Its second layer is there from half of the steps on."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()

    def forward(self, x, is_late=True):
        return self.second(self.first(x)) if is_late else self.first(x)


class LateLine(Line):
    def __init__(self, kind=None, **options):
        super().__init__(**options)
        torch.manual_seed(1)
        self.model, self.kind, self.is_late = Late(), kind, False

    def make_optimizers(self, recipe, model, *, is_fused=False):
        if self.kind is not None:
            return [self.kind(model.parameters(), recipe.lr, momentum=0.9)]
        return super().make_optimizers(recipe, model, is_fused=is_fused)

    def step(self, learner, batches):
        self.is_late = learner.rate < 0.05
        super().step(learner, batches)

    def measure(self, model, batch):
        self.then(next(self.numbers))
        return ((model(batch.x, self.is_late) - batch.y) ** 2).sum()


@AT
@pytest.mark.parametrize("accumulate", [1, 2])
def test_batches_made_by_chance_are_made_again(run, at, accumulate):
    settings = {**SETTINGS, "accumulate": accumulate}
    _, whole = run(Augmented(), "whole", **settings)
    run(Augmented(then=stop_at(at)), **settings)
    assert_same(run(Augmented(), **settings)[1], whole)


@AT
@pytest.mark.parametrize("kind", [None, torch.optim.SGD, torch.optim.RMSprop])
def test_parameters_without_a_gradient_yet_have_no_state(run, at, kind):
    _, whole = run(LateLine(kind), "whole", **SETTINGS)
    _, left = run(LateLine(kind, then=stop_at(at)), **SETTINGS)
    assert len(left["optimizer"]["state"]) == (2 if at < 8 else 4)
    assert_same(run(LateLine(kind), **SETTINGS)[1], whole)
