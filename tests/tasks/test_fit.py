"""The training loop against a plain one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.tasks.training.average import MovingAverage
from regard.tasks.training.fit import fit
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.machine import Machine
from regard.tasks.training.recipe import Recipe
from tests.tasks.line import Line, Points, Walk, assert_near, learn_plainly, stop_at

pytest.importorskip("lightning")


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
    average, expected = MovingAverage(model, 0.6), model.weight.detach().clone()
    for step in range(9):
        nn.init.constant_(model.weight, float(step))
        average.update()
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    torch.testing.assert_close(average.model.weight, expected)
    assert not average.model.weight.requires_grad


def test_the_average_of_narrow_weights_moves_by_little():
    model = nn.Linear(3, 3).bfloat16()
    nn.init.constant_(model.weight, 1.0)
    average = MovingAverage(model, 0.998)
    average.steps = 10**6
    nn.init.constant_(model.weight, 1.5)
    for _ in range(500):
        average.update()
    # to one place of bfloat16
    assert average.read().weight.dtype == torch.bfloat16
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
