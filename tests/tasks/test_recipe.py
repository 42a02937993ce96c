"""Schedules against torch's own, and settings that make no sense."""

from __future__ import annotations

import builtins
import json
from dataclasses import asdict

import pytest
import torch
from torch.optim import lr_scheduler as torches

from regard import RegardError
from regard.extras import install
from regard.tasks.training.machine import LAUNCHED, Machine, holds_parts
from regard.tasks.training.recipe import Recipe

WARMUP, TOTAL, LR = 7, 40, 0.3


def follow(after) -> list[float]:
    """The rates of torch's schedules, a warm-up and then this."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], LR)
    # torch's warm-up has a fraction of its own at the first step
    warm = torches.LinearLR(optimizer, 1 / WARMUP, 1.0, WARMUP - 1)
    both = torches.SequentialLR(optimizer, [warm, after(optimizer)], [WARMUP])
    rates = []
    for _ in range(TOTAL):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        both.step()
    return rates


SCHEDULES = {
    "constant": lambda optimizer: torches.ConstantLR(optimizer, 1.0),
    "linear": lambda optimizer: torches.LinearLR(optimizer, 1.0, 0.0, TOTAL - WARMUP),
    "cosine": lambda optimizer: torches.CosineAnnealingLR(optimizer, TOTAL - WARMUP),
    "inverse-sqrt": lambda optimizer: torches.LambdaLR(optimizer, lambda t: (WARMUP / (WARMUP + t)) ** 0.5),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_against_torch(name):
    recipe = Recipe(lr=LR, warmup=WARMUP, schedule=name)
    assert [recipe.rate(step, TOTAL) for step in range(TOTAL)] == pytest.approx(follow(SCHEDULES[name]), abs=1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_a_warm_up_a_schedule_starts_at_its_top(name):
    recipe = Recipe(lr=LR, schedule=name)
    rates = [recipe.rate(step, TOTAL) for step in range(TOTAL)]
    assert rates[0] == LR
    assert rates == sorted(rates, reverse=True)
    assert min(rates) > 0


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 3, 50])
def test_a_run_of_one_step_or_all_warm_up(name, warmup):
    recipe = Recipe(lr=LR, warmup=warmup, schedule=name)
    for total in (1, 3):
        assert all(0 < recipe.rate(step, total) <= LR for step in range(total))


def test_through_json_and_back():
    recipe = Recipe(lr=0.5, schedule="cosine", patience=3, clip=None)
    assert Recipe.from_dict(json.loads(json.dumps(asdict(recipe)))) == recipe
    assert Recipe.from_dict({"lr": 0.5, "of later versions": 1}) == Recipe(lr=0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0."),
        ({"max_steps": -1}, "max_steps must be at least 1, got -1."),
        ({"patience": -1}, "patience must be at least 0, got -1."),
        ({"lr": -1.0}, "lr must be above 0, got -1.0."),
        ({"lr": float("nan")}, "lr must be above 0, got nan."),
        ({"clip": float("inf")}, "clip must be above 0, got inf."),
        ({"warmup": -1}, "warmup must be 0 or above, got -1."),
        ({"weight_decay": float("nan")}, "weight_decay must be 0 or above, got nan."),
        ({"seed": 2**63}, "seed must be below 2**63, got 9223372036854775808."),
        ({"average": 1.0}, "average must lie in [0, 1), got 1.0."),
        ({"beta2": -0.1}, "beta2 must lie in [0, 1), got -0.1."),
        ({"schedule": "wave"}, "schedule must be one of 'constant', 'linear', 'cosine', 'inverse-sqrt', got 'wave'."),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(RegardError) as error:
        Recipe(**settings)
    assert str(error.value) == message


CANNOT = "this machine cannot be set up (X): see accelerator, devices, strategy."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "16"}, "precision must be one of 32-true, bf16-mixed, bf16-true, 64-true, got '16'."),
        ({"devices": "two"}, "devices must be 'auto', a count, or numbers as 0,2, got 'two'."),
        ({"devices": "0"}, CANNOT),
        ({"accelerator": "abacus"}, "accelerator must be one of auto, cpu, cuda, gpu, mps, got 'abacus'."),
        ({"strategy": "magic"}, CANNOT),
        # a package that is not there
        ({"strategy": "deepspeed"}, CANNOT),
    ],
)
def test_machines_that_are_none(settings, message):
    pytest.importorskip("lightning")
    with pytest.raises(RegardError) as error:
        Machine(**{"accelerator": "cpu", **settings}).launch()
    start, _, end = message.partition("X")
    assert str(error.value).startswith(start)
    assert str(error.value).endswith(end)
    assert len(str(error.value)) <= 200


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RegardError) as error:
        Machine(accelerator="cuda").launch()
    assert str(error.value) == "accelerator 'cuda' is not there, torch sees no GPU: use auto or cpu."


def test_nodes_that_nobody_started(monkeypatch):
    pytest.importorskip("lightning")
    names = [name for some in LAUNCHED for name in some]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RegardError) as error:
        Machine(accelerator="cpu", num_nodes=3).launch()
    assert str(error.value) == (
        "num_nodes is 3, but nothing started the others: run the same command on each by torchrun, see torchrun --help."
    )
    # started by something, it goes on to what Fabric says of this
    for some in LAUNCHED[1:]:
        with monkeypatch.context() as patch:
            for name in some:
                patch.setenv(name, "0")
            with pytest.raises(RegardError, match="this machine cannot be set up"):
                Machine(accelerator="cpu", strategy="abacus", num_nodes=3).launch()


def test_a_machine():
    pytest.importorskip("lightning")
    fabric = Machine(accelerator="cpu", precision="64-true").launch()
    assert (fabric.world_size, fabric.is_global_zero, holds_parts(fabric)) == (1, True, False)


@pytest.mark.parametrize(
    ("package", "logs", "message"),
    [
        ("lightning.fabric", None, f"training needs the package lightning: {install('train')}."),
        ("lightning.fabric.loggers", "x", f"logs for TensorBoard need its package: {install('logs')}."),
    ],
)
def test_missing_packages(monkeypatch, package, logs, message):
    pytest.importorskip("lightning")
    inner = builtins.__import__

    def lack(name, *rest):
        if name == package:
            raise ImportError(name)
        return inner(name, *rest)

    monkeypatch.setattr(builtins, "__import__", lack)
    with pytest.raises(RegardError) as error:
        Machine(accelerator="cpu").launch(logs)
    assert str(error.value) == message
