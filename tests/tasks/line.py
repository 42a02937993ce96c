"""A regression small enough to train in every test, and what its runs are held against."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard import RegardError
from regard.tasks.training.recipe import Recipe
from regard.tasks.training.task import Task


class Points(NamedTuple):
    x: Tensor
    y: Tensor

    def to(self, device):
        return Points(self.x.to(device), self.y.to(device))


class Walk:
    """Batches of unlike sizes, in another order every epoch."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        chance = torch.Generator().manual_seed(5)
        self.batches = [Points(*torch.randn(2, size, 3, generator=chance, dtype=torch.float64)) for size in sizes]

    def __len__(self) -> int:
        return len(self.batches)

    def walk(self, epoch: int = 0, start: int = 0):
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(epoch)).tolist()
        return iter([self.batches[i] for i in order[start:]])


class Line(Task):
    """A regression; `then` is called with the number of each batch that is measured."""

    metric, more_is_better, is_lost = "loss", False, False

    def __init__(self, sizes=(5, 2, 4, 3, 6), dropout=0.0, then=lambda number: 1.0, found=None) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 3)).double()
        self.walk, self.then, self.numbers, self.found = Walk(sizes), then, itertools.count(1), found
        self.kept: list[dict[str, Tensor]] = []

    def batches(self, rank, world_size):
        return self.walk

    def count(self, batch):
        return len(batch.x)

    def measure(self, model, batch):
        factor = self.then(next(self.numbers))
        return ((model(batch.x) - batch.y) ** 2).sum() * (1.0 if factor is None else factor)

    def validate(self, model, fabric):
        assert not model.training
        if self.found is not None:
            return {"loss": next(self.found)}
        batch = self.walk.batches[0]
        answer = model(batch.x.to(next(model.parameters()).dtype))
        return {"loss": float(((answer - batch.y) ** 2).mean())}

    def save(self, folder, weights):
        self.kept.append({name: x.clone() for name, x in weights.items()})

    def check(self, folder):
        if self.is_lost:
            raise RegardError("it is lost")


def learn_plainly(
    task: Line, recipe: Recipe, steps: int, ends: Callable[[int], int] | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights after so many steps, and their average, without any of what is tested.

    `ends` says, by the step, where the run is to end.
    """
    model, optimizer = task.model, torch.optim.AdamW(
        task.model.parameters(), betas=(recipe.beta1, recipe.beta2), weight_decay=recipe.weight_decay
    )  # fmt: skip
    average, step = {name: x.clone() for name, x in model.state_dict().items()}, 0
    for epoch in itertools.count():
        batches = list(task.walk.walk(epoch))
        for start in range(0, len(batches), recipe.accumulate):
            group = batches[start : start + recipe.accumulate]
            x, y = (torch.cat(parts) for parts in zip(*group, strict=True))
            optimizer.param_groups[0]["lr"] = recipe.rate(step, ends(step) if ends else steps)
            optimizer.zero_grad()
            (((model(x) - y) ** 2).sum() / len(x)).backward()
            if recipe.clip:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            decay = min(recipe.average, (1 + step) / (10 + step))
            for name, w in model.state_dict().items():
                average[name] = decay * average[name] + (1 - decay) * w
            step += 1
            if step == steps:
                return model.state_dict(), average


def assert_near(found, expected):
    # what a model answers, Fabric makes float32; its weights and all sums stay float64
    assert list(found) == list(expected)
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-8)


def assert_same(one, other):
    assert one["model"].keys() == other["model"].keys()
    for name, x in one["model"].items():
        assert torch.equal(x, other["model"][name]), name
    for name, entries in one["optimizer"]["state"].items():
        for key, x in entries.items():
            assert torch.equal(x, other["optimizer"]["state"][name][key]), (name, key)
    for name in one["average"] or ():
        assert torch.equal(one["average"][name], other["average"][name]), name
    rows = [[{**row, "seconds": 0} for row in state["standing"]["history"]] for state in (one, other)]
    assert rows[0] == rows[1]


def stop_at(*numbers, how=signal.SIGTERM):
    return lambda number: signal.raise_signal(how) if number in numbers else None
