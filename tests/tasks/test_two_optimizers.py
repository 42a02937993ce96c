"""A task with two optimizers and losses by name, as a GAN has them: against a plain loop, and stopped in any step."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.tasks.training import fit as fitting
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.progress import Progress
from regard.tasks.training.recipe import Recipe
from regard.tasks.training.task import make_adamw
from tests.tasks.line import Line, assert_near, stop_at

pytest.importorskip("lightning")

SETTINGS = {"max_steps": 12, "epochs": 99, "average": 0.9, "schedule": "linear", "warmup": 3, "validate_every": 4}


class Pair(nn.Module):
    """A generator of points from noise, and a discriminator of them."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.generator = nn.Linear(3, 3).double()
        self.discriminator = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 1)).double()

    def forward(self, noise, real=None):
        made = self.generator(noise)
        if real is None:
            return -self.discriminator(made).sum()
        return self.discriminator(made.detach()).sum() - self.discriminator(real).sum()


class Gan(Line):
    """The discriminator learns twice in a step, the generator once, each with an optimizer of its own."""

    def __init__(self, dropout=0.3, then=lambda number: 1.0) -> None:
        super().__init__(then=then)
        torch.manual_seed(2)
        self.model = Pair(dropout)

    def make_optimizers(self, recipe, model, *, is_fused=False):
        discriminator = make_adamw(
            [{"params": model.discriminator.parameters(), "lr_scale": 4.0}], recipe, is_fused=is_fused
        )
        return [discriminator, torch.optim.SGD(model.generator.parameters(), recipe.lr, momentum=0.5)]

    def step(self, learner, batches):
        self.then(next(self.numbers))
        discriminator, generator = learner.optimizers
        for optimizer, times, name in ((discriminator, 2, "discriminator"), (generator, 1, "generator")):
            for _ in range(times):
                optimizer.zero_grad()
                for batch in batches:
                    loss = learner.model(batch.x, batch.y) if times == 2 else learner.model(batch.x)
                    learner.backward(loss)
                    learner.note(loss, name)
                learner.update(optimizer)

    def validate(self, model, fabric):
        batch = self.walk.batches[0]
        return {"loss": float(model(batch.x, batch.y)), "spread": float(model.generator(batch.x).std())}


def learn_plainly(steps):
    task, recipe = Gan(dropout=0.0), Recipe(**SETTINGS)
    model = task.model
    discriminator = torch.optim.AdamW(
        model.discriminator.parameters(), betas=(recipe.beta1, recipe.beta2), weight_decay=recipe.weight_decay
    )
    generator = torch.optim.SGD(model.generator.parameters(), 1.0, momentum=0.5)
    batches = itertools.chain.from_iterable(task.walk.walk(epoch) for epoch in itertools.count())
    for step, batch in enumerate(itertools.islice(batches, steps)):
        for optimizer, scale, times in ((discriminator, 4.0, 2), (generator, 1.0, 1)):
            optimizer.param_groups[0]["lr"] = scale * recipe.rate(step, steps)
            for _ in range(times):
                model.zero_grad()
                ((model(batch.x, batch.y) if times == 2 else model(batch.x)) / len(batch.x)).backward()
                nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], recipe.clip)
                optimizer.step()
    return model.state_dict()


def test_each_optimizer_steps_as_in_a_plain_loop(run):
    standing, state = run(Gan(dropout=0.0), **SETTINGS)
    assert_near(state["model"], learn_plainly(12))
    assert list(standing.history[0])[4:8] == ["loss_discriminator", "loss_generator", "valid_loss", "valid_spread"]


@pytest.mark.parametrize("at", [1, 2, 5, 8, 11])
def test_stopped_in_any_step_it_comes_to_the_same_end(run, at):
    _, whole = run(Gan(), "whole", **SETTINGS)
    assert run(Gan(then=stop_at(at)), **SETTINGS)[0].ended == "SIGTERM"
    standing, state = run(Gan(), **SETTINGS)
    assert standing.ended == "steps"
    for part in ("model", "average"):
        assert all(torch.equal(x, whole[part][name]) for name, x in state[part].items())
    found, expected = ([list(_flatten(one)) for one in x["optimizer"]] for x in (state, whole))
    assert [len(one) for one in found] == [len(one) for one in expected]
    assert len(found) == 2
    assert all(torch.equal(x, y) for one, other in zip(found, expected, strict=True)
               for x, y in zip(one, other, strict=True))  # fmt: skip
    rows = [[{**row, "seconds": 0} for row in one["standing"]["history"]] for one in (state, whole)]
    assert rows[0] == rows[1]


def test_a_process_that_is_not_the_first_resumes_with_the_names_of_all_losses(run, fabric, tmp_path, monkeypatch):
    """All sum what they have by name, and one that lacks a name would wait for ever."""
    _, state = run(Gan(then=stop_at(6)), **SETTINGS)
    monkeypatch.setattr(type(fabric), "is_global_zero", property(lambda self: False))
    recipe, folder = Recipe(**SETTINGS), RunFolder(tmp_path / "run")
    trainer = fitting._Trainer(Gan(), folder, recipe, fabric, Progress(is_shown=False))
    trainer.resume(state)
    assert list(trainer.learner.parts) == list(state["standing"]["loss_parts"]) == ["discriminator", "generator"]
    # the sums themselves are the first one's
    assert [float(x) for x in (trainer.learner.loss, *trainer.learner.parts.values())] == [0.0] * 3
    assert trainer.count == 0 < trainer.standing.loss_count


def test_a_run_of_other_optimizers_is_refused(run):
    run(Gan(then=stop_at(3)), **SETTINGS)

    class Single(Gan):
        def make_optimizers(self, recipe, model, *, is_fused=False):
            return [make_adamw(model.parameters(), recipe, is_fused=is_fused)]

    with pytest.raises(RegardError, match=r"resume.safetensors is of another run"):
        run(Single(), **SETTINGS)


def _flatten(tree):
    if isinstance(tree, dict):
        for name in sorted(tree, key=str):
            yield from _flatten(tree[name])
    elif isinstance(tree, list):
        for one in tree:
            yield from _flatten(one)
    elif isinstance(tree, torch.Tensor):
        yield tree
