"""The training loop against a plain one, and against itself when it is stopped."""

from __future__ import annotations

import itertools
import math
import os
import signal
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from regard import RegardError
from regard.tasks import fit as fitting
from regard.tasks.average import Average
from regard.tasks.fit import fit
from regard.tasks.folder import RunFolder
from regard.tasks.recipe import Machine, Recipe
from regard.tasks.signals import heed_signals

pytest.importorskip("lightning")


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


class Line:
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


@pytest.fixture(scope="module")
def fabric():
    return Machine(accelerator="cpu", precision="64-true").launch()


@pytest.fixture
def run(tmp_path, fabric):
    """Trains in a folder; the standing, and the state that was saved last."""

    def call(task, name="run", **recipe):
        folder = RunFolder(tmp_path / name)
        standing = fit(task, folder, Recipe(**recipe), fabric, is_shown=False)
        return standing, folder.load()

    return call


def learn_plainly(task: Line, recipe: Recipe, steps: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights after so many steps, and their average, without any of what is tested."""
    model, optimizer = task.model, torch.optim.AdamW(
        task.model.parameters(), betas=(recipe.beta1, recipe.beta2), weight_decay=recipe.weight_decay
    )  # fmt: skip
    average, step = {name: x.clone() for name, x in model.state_dict().items()}, 0
    for epoch in itertools.count():
        batches = list(task.walk.walk(epoch))
        for start in range(0, len(batches), recipe.accumulate):
            group = batches[start : start + recipe.accumulate]
            x, y = (torch.cat(parts) for parts in zip(*group, strict=True))
            optimizer.param_groups[0]["lr"] = recipe.rate(step, steps)
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


RECIPES = {
    "plain": {"clip": None},
    "clipped": {"clip": 0.05, "lr": 0.1},
    "accumulated": {"accumulate": 2},
    "averaged": {"average": 0.7},
    "all": {"accumulate": 3, "average": 0.9, "schedule": "cosine", "warmup": 4, "clip": 0.5, "weight_decay": 0.3,
            "beta2": 0.9, "lr": 0.03},
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_against_a_plain_loop(run, name):
    recipe = Recipe(max_steps=13, epochs=99, **RECIPES[name])
    standing, state = run(Line(), max_steps=13, epochs=99, save_every=4, **RECIPES[name])
    weights, average = learn_plainly(Line(), recipe, 13)
    assert (standing.step, standing.ended) == (13, "steps")
    assert_near(state["model"], weights)
    if recipe.average:
        assert_near(state["average"], average)


def test_two_batches_in_a_step_are_one_of_both(run):
    # one epoch has one batch of 7, or two of 5 and 2
    _, apart = run(Line(sizes=(5, 2)), "apart", epochs=6, accumulate=2)
    task = Line(sizes=(7,))
    task.walk.batches = [Points(*(torch.cat(x) for x in zip(*Walk((5, 2)).batches, strict=True)))]
    _, together = run(task, "together", epochs=6)
    assert_near(apart["model"], together["model"])
    assert apart["standing"]["step"] == together["standing"]["step"] == 6


def test_the_average_by_its_formula():
    model = nn.Linear(2, 2)
    average, expected = Average(model, 0.6), model.weight.detach().clone()
    for step in range(9):
        nn.init.constant_(model.weight, float(step))
        average.follow(model)
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    torch.testing.assert_close(average.model.weight, expected)
    assert not average.model.weight.requires_grad


def test_the_average_of_narrow_weights_moves_by_little():
    model = nn.Linear(3, 3).bfloat16()
    nn.init.constant_(model.weight, 1.0)
    average = Average(model, 0.998)
    average.steps = 10**6
    nn.init.constant_(model.weight, 1.5)
    for _ in range(500):
        average.follow(model)
    # to one place of bfloat16
    assert average.settle().weight.dtype == torch.bfloat16
    assert average.model.weight[0, 0].item() == pytest.approx(1.5 - 0.5 * 0.998**500, abs=2**-8)
    assert average.wide.weight[0, 0].item() == pytest.approx(1.5 - 0.5 * 0.998**500, abs=1e-5)


def test_a_narrow_run_is_averaged_widely_and_goes_on_from_that(tmp_path):
    fabric = Machine(accelerator="cpu", precision="bf16-true").launch()
    ends = []
    for name, stops in (("whole", (12,)), ("parts", (5, 12))):
        for steps in stops:
            task, folder = Line(dropout=0.3), RunFolder(tmp_path / name)
            fit(task, folder, Recipe(max_steps=steps, epochs=99, average=0.9), fabric, is_shown=False)
        ends.append(folder.load())
        assert {x.dtype for x in ends[-1]["model"].values()} == {torch.bfloat16}
        assert {x.dtype for x in ends[-1]["average"].values()} == {torch.float32}
        # what is kept for use is what was looked at
        assert {x.dtype for kept in task.kept for x in kept.values()} <= {torch.bfloat16}
    for name, x in ends[0]["average"].items():
        assert torch.equal(x, ends[1]["average"][name]), name
        assert not torch.equal(x, x.bfloat16().float())


def test_best_weights_that_are_lost_are_missed_at_once(run, tmp_path):
    run(Line(then=stop_at(3)), "early", epochs=2)
    run(Line(), epochs=1)
    lost = Line()
    lost.is_lost = True
    for epochs in (1, 2):
        with pytest.raises(RegardError, match="it is lost"):
            run(lost, epochs=epochs)
    # where none was the best yet, there is nothing to miss
    assert run(lost, "early", epochs=1)[0].best_step == 5


def test_metrics_that_are_lost_come_back(run, tmp_path):
    run(Line(), epochs=2)
    file = tmp_path / "run" / "metrics.jsonl"
    before = file.read_text()
    file.unlink()
    run(Line(), epochs=2)
    assert file.read_text() == before


def test_what_a_row_says(run):
    standing, state = run(Line(), epochs=2, lr=0.01)
    assert [row["step"] for row in standing.history] == [5, 10]
    assert [row["epoch"] for row in standing.history] == [1.0, 2.0]
    assert set(standing.history[0]) == {"step", "epoch", "lr", "loss", "valid_loss", "seconds"}
    # the mean over all points of an epoch, each with the weights of its step
    task, losses, count = Line(), 0.0, 0
    optimizer = torch.optim.AdamW(task.model.parameters(), 0.01)
    for batch in task.walk.walk(0):
        loss = ((task.model(batch.x) - batch.y) ** 2).sum()
        optimizer.zero_grad()
        (loss / len(batch.x)).backward()
        nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        optimizer.step()
        losses, count = losses + loss.item(), count + len(batch.x)
    assert standing.history[0]["loss"] == pytest.approx(losses / count, rel=1e-6)
    assert state["standing"]["history"] == standing.history


def test_the_best_weights_are_kept_and_patience_ends(run):
    task = Line(found=iter([3.0, 2.0, 2.5, 2.0, 1.0]))
    standing, _ = run(task, epochs=9, validate_every=2, patience=2)
    assert (standing.ended, standing.step, standing.best, standing.best_step) == ("patience", 8, 2.0, 4)
    assert len(task.kept) == 2
    # the same again is over; with more patience it goes on
    assert run(Line(found=iter([])), epochs=9, validate_every=2, patience=2)[0].step == 8
    standing, _ = run(Line(found=iter([1.0, 1.5, 1.6, 1.7])), epochs=9, validate_every=2, patience=3)
    assert (standing.ended, standing.step, standing.best) == ("patience", 16, 1.0)


def test_more_may_be_better(run):
    task = Line(found=iter([3.0, 2.0, 4.0]))
    task.more_is_better = True
    assert run(task, epochs=3)[0].best_step == 15


def stop_at(*numbers, how=signal.SIGTERM):
    return lambda number: signal.raise_signal(how) if number in numbers else None


STOPPED = {"max_steps": 12, "epochs": 99, "accumulate": 2, "average": 0.9, "schedule": "linear", "warmup": 3}


@pytest.mark.parametrize("at", range(1, 16))
def test_stopped_in_any_step_it_comes_to_the_same_end(run, at):
    _, whole = run(Line(dropout=0.3), "whole", **STOPPED)
    how = signal.SIGINT if at % 2 else signal.SIGTERM
    standing, _ = run(Line(dropout=0.3, then=stop_at(at, how=how)), **STOPPED)
    assert standing.ended == how.name
    standing, state = run(Line(dropout=0.3), **STOPPED)
    assert standing.ended == "steps"
    assert_same(state, whole)


def test_broken_off_it_goes_on_from_the_last_save(run):
    def fail(number):
        if number == 8:
            raise OSError("the power is gone")

    _, whole = run(Line(dropout=0.3), "whole", **STOPPED)
    with pytest.raises(OSError, match="the power is gone"):
        run(Line(dropout=0.3, then=fail), save_every=1, **STOPPED)
    assert_same(run(Line(dropout=0.3), **STOPPED)[1], whole)


def test_more_steps_later(run):
    _, whole = run(Line(dropout=0.3), "whole", epochs=99, max_steps=11)
    run(Line(dropout=0.3), epochs=99, max_steps=4)
    standing, state = run(Line(dropout=0.3), epochs=99, max_steps=11)
    assert standing.step == 11
    for name, x in whole["model"].items():
        assert torch.equal(x, state["model"][name])


def test_fewer_steps_later(run):
    run(Line(then=stop_at(3)), epochs=99)
    standing, state = run(Line(), epochs=99, max_steps=2)
    # what was learned stays, and is looked at
    assert (standing.step, standing.ended, standing.best_step) == (3, "steps", 3)
    assert state["standing"]["history"] == standing.history != []


def test_a_second_signal_ends_at_once(run):
    with pytest.raises(KeyboardInterrupt):
        run(Line(then=stop_at(3, 4)), epochs=99, accumulate=2)
    # and leaves the handlers as they were
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with heed_signals() as ear:
        os.kill(os.getpid(), signal.SIGINT)
        assert ear.number == signal.SIGINT


def test_what_was_ignored_is_not_heard():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with heed_signals() as ear:
            signal.raise_signal(signal.SIGINT)
            assert ear.number == 0
            signal.raise_signal(signal.SIGTERM)
            assert ear.number == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_loss_that_is_no_number_is_not_saved(run, tmp_path):
    for name, save_every in (("often", 2), ("seldom", 100)):
        with pytest.raises(RegardError) as error:
            run(Line(then=lambda number: math.nan if number == 4 else 1.0), name, save_every=save_every)
        step = 4 if save_every == 2 else 5
        assert str(error.value) == (
            f"the loss became nan before step {step}: lower lr, or raise warmup; begin in a new folder."
        )
    # the last good one
    assert RunFolder(tmp_path / "often").load()["standing"]["step"] == 2


def test_weights_that_are_no_numbers_are_not_saved(run, tmp_path):
    class Steep(Line):
        def measure(self, model, batch):
            loss = super().measure(model, batch)
            # finite itself, unlike its derivative
            return loss + (0 * torch.sqrt(0 * loss) if next(self.numbers) == 6 else 0)

    with pytest.raises(RegardError, match=r"^0\.weight became nan before step 3: lower lr, or raise warmup;"):
        run(Steep(), save_every=1)
    state = RunFolder(tmp_path / "run").load()
    assert state["standing"]["step"] == 2
    assert all(x.isfinite().all() for x in state["model"].values())


def test_a_validation_that_is_no_number(run):
    with pytest.raises(RegardError, match=r"^the validation's loss became nan before step 5: lower lr"):
        run(Line(found=iter([math.nan])))


def test_the_state_of_another_run(run, tmp_path):
    run(Line(), epochs=1)
    file = tmp_path / "run" / "resume.safetensors"
    message = f"{file} is of another run (RuntimeError): restore it, or name a new folder."
    other = Line()
    other.model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3)).double()
    with pytest.raises(RegardError) as error:
        run(other, epochs=2)
    assert str(error.value) == message
    for state in ({}, {"standing": {"steps": 3}}, {"standing": [1]}, [1]):
        RunFolder(tmp_path / "run").save(state if isinstance(state, dict) else {"standing": state}, [])
        with pytest.raises(RegardError, match=r"is of another run \(\w+\): restore it, or name a new folder\.$"):
            run(Line(), epochs=2)


def test_weights_in_parts_have_no_average(run, monkeypatch):
    monkeypatch.setattr(fitting, "holds_parts", lambda fabric: True)
    message = "average must be 0 where the weights are in parts (strategy='fsdp')."
    with pytest.raises(RegardError) as error:
        run(Line(), average=0.5)
    assert str(error.value) == message


def test_the_seed_decides(run):
    states = [run(Line(dropout=0.3), f"run{at}", seed=seed, epochs=1)[1] for at, seed in enumerate((1, 1, 2))]
    assert_same(states[0], states[1])
    assert not torch.equal(states[0]["model"]["0.weight"], states[2]["model"]["0.weight"])
