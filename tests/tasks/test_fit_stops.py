"""The training loop against itself when it is stopped."""

from __future__ import annotations

import math
import os
import signal

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.tasks.training import fit as fitting
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.recipe import Recipe
from regard.tasks.training.signals import catch_signals
from tests.tasks.line import Line, assert_near, assert_same, learn_plainly, stop_at

pytest.importorskip("lightning")


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


def test_it_says_from_where_it_goes_on(run, monkeypatch):
    said = []
    monkeypatch.setattr("regard.tasks.training.progress.Progress.say", lambda self, line: said.append(line))
    run(Line(then=stop_at(3)), max_steps=12, epochs=99)
    for _ in range(2):
        run(Line(), max_steps=12, epochs=99)
    # neither when it begins nor when it is done
    assert [line for line in said if not line.startswith("step ")] == ["Resuming from step 3 of 12."]


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
    with catch_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.number == signal.SIGINT


def test_what_was_ignored_is_not_heard():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with catch_signals() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.number == 0
            signal.raise_signal(signal.SIGTERM)
            assert stop.number == signal.SIGTERM
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
    message = "average must be 0 where the weights are sharded (strategy='fsdp')."
    with pytest.raises(RegardError) as error:
        run(Line(), average=0.5)
    assert str(error.value) == message


def test_the_seed_decides(run):
    states = [run(Line(dropout=0.3), f"run{at}", seed=seed, epochs=1)[1] for at, seed in enumerate((1, 1, 2))]
    assert_same(states[0], states[1])
    assert not torch.equal(states[0]["model"]["0.weight"], states[2]["model"]["0.weight"])


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_run_that_is_extended_twice_and_cut_short(run, schedule):
    recipe = {"schedule": schedule, "validate_every": 1, "epochs": 99, "average": 0.5, "save_every": 3, "lr": 0.03}
    for end in (3, 6):
        standing, _ = run(Line(), "moved", max_steps=end, **recipe)
        assert (standing.step, standing.ended) == (end, "steps")
    standing, _ = run(Line(then=stop_at(2)), "moved", max_steps=20, **recipe)
    assert (standing.step, standing.ended) == (8, "SIGTERM")
    standing, state = run(Line(), "moved", max_steps=10, **recipe)
    assert (standing.step, standing.ended) == (10, "steps")
    if schedule == "constant":
        assert_same(state, run(Line(), "planned", max_steps=10, **recipe)[1])
    # the rate falls towards the end that is planned at each step
    ends = [3] * 3 + [6] * 3 + [20] * 2 + [10] * 2
    weights, average = learn_plainly(Line(), Recipe(**recipe), 10, ends=ends.__getitem__)
    assert_near(state["model"], weights)
    assert_near(state["average"], average)


def test_patience_may_be_moved_too(run):
    def found():
        return iter([3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5])

    recipe = {"validate_every": 1, "epochs": 99, "max_steps": 8}
    assert run(Line(found=found()), patience=2, **recipe)[0].step == 4
    standing, _ = run(Line(found=iter([2.5] * 9)), patience=4, **recipe)
    assert (standing.step, standing.ended) == (6, "patience")
    # none at all
    standing, _ = run(Line(found=iter([2.5] * 9)), patience=0, **recipe)
    assert (standing.step, standing.ended) == (8, "steps")


def test_a_run_that_ended_early_is_extended_all_the_same(run, tmp_path, fabric, monkeypatch):
    said = []
    monkeypatch.setattr("regard.tasks.training.progress.Progress.say", lambda self, line: said.append(line))
    recipe = {"validate_every": 1, "epochs": 99, "patience": 2}
    assert run(Line(found=iter([2.0] * 9)), max_steps=20, **recipe)[0].step == 3
    # the same once more is done, and says nothing of going on
    del said[:]
    assert run(Line(found=iter([2.0] * 9)), max_steps=20, **recipe)[0].step == 3
    assert said == []
    folder = RunFolder(tmp_path / "run")
    (folder.path / "resume.json").write_text('{"recipe": {}}')
    moved, longer = {"max_steps": (20, 30)}, Recipe(max_steps=30, **recipe)
    standing = fitting.fit(Line(found=iter([2.0] * 9)), folder, longer, fabric, moved=moved, is_shown=False)
    assert (standing.step, standing.ended) == (5, "patience")


def test_of_equals_the_surer_is_kept(run):
    class Sure(Line):
        metric, more_is_better = "accuracy", True

        def validate(self, model, fabric):
            return next(self.found)

    pairs = [(50, 1.0), (75, 2.0), (75, 3.0), (75, 1.5), (50, 0.1)]
    found = [{"loss": loss, "accuracy": accuracy} for accuracy, loss in pairs]
    standing, _ = run(Sure(found=iter(found)), validate_every=1, max_steps=5, epochs=99)
    assert (standing.best, standing.best_step, standing.best_loss) == (75, 4, 1.5)
    # which is no better one, for patience
    standing, _ = run(Sure(found=iter(found)), "patient", validate_every=1, max_steps=5, epochs=99, patience=2)
    assert (standing.best_step, standing.ended) == (4, "patience")
