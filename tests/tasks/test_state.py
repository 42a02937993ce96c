"""States come back bit for bit, and broken files say so in one line."""

from __future__ import annotations

import os
import pathlib
import pickle

import pytest
import torch
from torch import Tensor, nn

from regard import RegardError
from regard.tasks.training.state import load_state, save_state

safetensors = pytest.importorskip("safetensors.torch")


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.cpu().contiguous().view(-1).view(torch.uint8).equal(other.contiguous().view(-1).view(torch.uint8))
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert repr(one) == repr(other)


def round_trip(folder: pathlib.Path, state):
    save_state(folder / "state.safetensors", state)
    return load_state(folder / "state.safetensors")


@pytest.mark.parametrize(
    "state",
    [
        None, True, 0, -(2**70), 0.1, float("inf"), float("-inf"), 5e-324, "", 'a "quoted" 西安\n', [], (), {},
        {1: "int key", "1": "text key"}, [1, [2, (3, {"x": None})]], ["tensor", "state"], {"a.b": 1, "a": {"b": 2}},
    ],
    ids=repr,
)  # fmt: skip
def test_trees(tmp_path, state):
    assert_same(round_trip(tmp_path, state), state)


def test_nan(tmp_path):
    assert repr(round_trip(tmp_path, float("nan"))) == "nan"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3), torch.tensor(1.5), torch.zeros(0, 4), torch.randn(3, 4).T, torch.arange(5),
        torch.tensor([True, False]), torch.randn(3).bfloat16(), torch.randn(3).half(), torch.randn(2).double(),
        torch.tensor([float("nan"), -0.0]), torch.get_rng_state(), torch.ones(1).expand(4),
    ],
    ids=lambda x: f"{x.dtype}{list(x.shape)}",
)  # fmt: skip
def test_tensors(tmp_path, tensor):
    assert_same(round_trip(tmp_path, {"x": [tensor, tensor]}), {"x": [tensor, tensor]})


def test_places_that_read_the_same(tmp_path):
    state = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}, 1: torch.ones(2), "1": torch.zeros(2)}
    assert_same(round_trip(tmp_path, state), state)


def train(model: nn.Module, optimiser: torch.optim.Optimizer, schedule, steps: int) -> None:
    for _ in range(steps):
        optimiser.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimiser.step()
        schedule.step()


def make(state=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5)
    if state is not None:
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["random"])
    return model, optimiser, schedule


def test_a_run_goes_on_as_if_nothing_had_happened(tmp_path):
    model, optimiser, schedule = make()
    train(model, optimiser, schedule, 3)
    kept = {
        "model": dict(model.state_dict()),
        "optimiser": optimiser.state_dict(),
        "schedule": {key: x for key, x in schedule.state_dict().items() if not key.startswith("_get_lr")},
        "random": torch.get_rng_state(),
    }
    found = round_trip(tmp_path, kept)
    train(model, optimiser, schedule, 4)
    again = make(found)
    train(*again, 4)
    assert_same(dict(again[0].state_dict()), dict(model.state_dict()))
    assert_same(again[1].state_dict(), optimiser.state_dict())


def test_a_broken_file_is_one_line(tmp_path):
    path = tmp_path / "state.safetensors"
    save_state(path, {"x": torch.randn(100), "step": 1})
    whole = path.read_bytes()
    for content in (b"", b"\x00", whole[:50], whole[:-8], b"\xff" * 100, whole.replace(b"int", b"ink")):
        path.write_bytes(content)
        with pytest.raises(RegardError) as error:
            load_state(path)
        reason = str(error.value).partition("(")[2].rpartition(")")[0]
        message = f"{path} cannot be read as a state ({reason}): restore it, or name a new folder."
        assert str(error.value) == message
        assert reason
        assert "\n" not in message


def test_a_pickle_is_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pathlib.Path.touch, (tmp_path / "sprung",))

    path = tmp_path / "state.safetensors"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(RegardError):
        load_state(path)
    assert not (tmp_path / "sprung").exists()


def test_what_is_wrong_is_said(tmp_path):
    path = tmp_path / "state.safetensors"
    with pytest.raises(RegardError) as error:
        load_state(path)
    assert str(error.value) == f"{path} is not there: no run was saved in this place."
    safetensors.save_file({"x": torch.ones(1)}, path)
    with pytest.raises(RegardError) as error:
        load_state(path)
    assert str(error.value) == f"{path} is not a state of a run: it has no mark 'regard state 1'."
    with pytest.raises(RegardError) as error:
        save_state(path, {"a": [1, {2}]})
    assert str(error.value) == "state.a.1 is a set: a state holds numbers, texts, tensors, lists and dicts."
    with pytest.raises(RegardError) as error:
        save_state(path, {"a": {None: 1}})
    assert str(error.value) == "state.a has the key None: keys of a state must be texts or integers."


def test_a_save_that_breaks_off_leaves_the_state_before(tmp_path, monkeypatch):
    path = tmp_path / "state.safetensors"
    save_state(path, {"step": 1})

    def refuse(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no space left"):
        save_state(path, {"step": 2})
    assert load_state(path) == {"step": 1}
