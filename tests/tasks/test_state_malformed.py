"""States that are broken: one line with file, cause and fix, at once; the same families as a model's weights."""

from __future__ import annotations

import os
import pathlib
import random
import time

import pytest
import torch

from regard import RegardError
from regard.tasks.training.state import load_state, save_state
from tests.models.malformed import MORE, MOST_SECONDS, SAFETENSORS, change, make_pickles, mutate, refusal

pytest.importorskip("safetensors")

STATE = {"step": 3, "rates": [0.1, (None, True)], "weights": {"a": torch.randn(3, 4), "b": torch.randn(3, 4)}}


@pytest.fixture
def file(tmp_path) -> pathlib.Path:
    path = tmp_path / "resume.safetensors"
    save_state(path, STATE)
    return path


@pytest.mark.parametrize("case", [*SAFETENSORS, *MORE])
def test_broken_files_are_named(file, case):
    {**SAFETENSORS, **MORE}[case](file)
    line = refusal(file, load_state)
    # without its metadata it may be a file of anyone's
    assert line.startswith(f"{file} ")
    assert line.endswith((
        "): restore it, or name a new folder.", "is not a state of a run: it has no mark 'regard state 1'.",
        ": no run was saved in this place.", "): check its rights.",
    ))  # fmt: skip


@pytest.mark.parametrize(
    "tree",
    [
        "", "[", "[]", '["int"]', '["int", "x"]', '["int", null]', '["float", "0x1p9999"]', '["float", 1]', "[1, 2]",
        '["tensor", "nope"]', '["tensor", ["a"]]', '["dict", 3]', '["dict", [[["list", []], 1]]]', '["dict", [1]]',
        '["set", []]', '["list", 1]', '{"a": 1}', "1.5", "NaN", "[" * 100_000, '["list", [' * 5000 + "]]" * 5000,
        f'["int", "{"9" * 5000}"]',
    ],
    ids=lambda tree: tree[:20],
)  # fmt: skip
def test_broken_trees_are_named(file, tree):
    change(lambda header, tensors: header["__metadata__"].update(tree=tree))(file)
    line = refusal(file, load_state)
    assert line.startswith(f"{file} cannot be read as a state (")
    assert line.endswith("): restore it, or name a new folder.")


def test_damage_is_seen(file):
    MORE["flipped"](file)
    assert "(damaged, its sha256 is another)" in refusal(file, load_state)


def test_the_same_state_is_the_same_file(file, tmp_path):
    for number in range(5):
        save_state(tmp_path / f"{number}", STATE)
        assert (tmp_path / f"{number}").read_bytes() == file.read_bytes()


def test_files_without_a_hash_are_read(file):
    change(lambda header, tensors: None)(file)
    assert load_state(file)["weights"]["a"].equal(STATE["weights"]["a"])


def test_pickles_stay_shut(file):
    canary = file.parent / "canary"
    for raw in make_pickles(canary).values():
        file.write_bytes(raw)
        assert str(file) in refusal(file, load_state)
    assert not canary.exists()


def test_what_could_not_be_read_again_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.tasks.training.state.MOST_HEADER_BYTES", 1000)
    with pytest.raises(RegardError) as error:
        save_state(tmp_path / "state", list(range(1000)))
    assert str(error.value) == "state is too long to be read again: keep long lists of numbers as tensors."
    assert os.listdir(tmp_path) == []


def test_mutated_files_load_or_are_refused(file):
    whole, rng, lines = file.read_bytes(), random.Random(6), []
    # half of them without a hash, which would tell nearly all
    change(lambda header, tensors: None)(file)
    unmarked = file.read_bytes()
    count = int(os.environ.get("REGARD_MUTATIONS", "75"))
    for number in range(count):
        file.write_bytes(mutate((whole, unmarked)[number % 2], rng))
        start = time.perf_counter()
        try:
            load_state(file)
        except RegardError as error:
            lines.append(str(error))
        assert time.perf_counter() - start < MOST_SECONDS
    assert len(lines) > count / 2
    assert all(len(line) <= 200 and line.isprintable() for line in lines)
