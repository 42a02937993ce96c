"""Runs that are killed at random moments, inside saves, by signals and by full disks come to the same end.

The long series is `python -m tools.kill_runs`; this is a short one of the same.
"""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

from regard.tasks.training.folder import RunFolder
from tests.wide import wide
from tools.compare_runs import DifferenceError, compare

for package in ("lightning", "safetensors", "tokenizers"):
    pytest.importorskip(package)


@wide
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_few_kills():
    kills, saves = 4, 2
    counts = ("--kills", str(kills), "--saves", str(saves), "--terms", "1", "--full", "1", "--kinds", "1")
    done = subprocess.run(
        [sys.executable, "-m", "tools.kill_runs", *counts],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        r"^(\d+) kills, (\d+) of them inside a save; (\d+) SIGTERM, (\d+) SIGINT; (\d+) full", done.stdout, re.M
    )
    assert found, done.stdout
    assert all(int(count) >= least for count, least in zip(found.groups(), (kills, saves, 1, 1, 1), strict=True))


# --- that the comparison can fail -------------------------------------------------------------------------------------


def write(folder, *, weights=b"weights", bit=0, step=3, row=0.5, more=()):
    run = RunFolder(folder)
    state = torch.tensor([1.0, 2.0])
    state.view(torch.int32)[0] += bit
    history = [{"loss": row, "seconds": 1.5}]
    run.save({"standing": {"step": step, "seconds": 9.0, "history": history}, "model": {"w": state}}, history)
    for name, content in (("model.safetensors", weights), *((name, b"") for name in more)):
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": b"others"}, "model.safetensors differs"),
        ({"bit": 1}, "resume.safetensors differs in state.model.w"),
        ({"step": 4}, "resume.safetensors differs in state.standing.step"),
        ({"row": 0.25}, "metrics.jsonl differs"),
        ({"more": (".resume.safetensors.x1",)}, "has or lacks ['.resume.safetensors.x1']"),
    ],
)
def test_a_difference_is_seen(tmp_path, change, words):
    compare(write(tmp_path / "a"), write(tmp_path / "b"))
    with pytest.raises(DifferenceError, match=re.escape(words)):
        compare(write(tmp_path / "c", **change), tmp_path / "b")


def test_seconds_may_differ(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name)
    row = {"loss": 0.5, "seconds": 99}
    (tmp_path / "a" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    compare(tmp_path / "a", tmp_path / "b")
