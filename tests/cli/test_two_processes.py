"""Two processes that `torchrun` starts, stopped and gone on with."""

import json
import os
import subprocess
import sys

import pytest

from regard.tasks.training.state import load_state
from tests.cli.kinds import KINDS
from tests.wide import wide

for package in ("lightning", "torchmetrics"):
    pytest.importorskip(package)

# a task of labels, and one of pairs
TASKS = ("tag", "translate")
TWICE = """
import json, signal, sys
from regard.cli import main
from regard.tasks.reading.labelling import LabelTask
from regard.tasks.text.translate import TranslateTask

for task, arguments in zip((LabelTask, TranslateTask), json.loads(sys.argv[1])):
    inner, seen = task.count, []

    def stop(self, batch):
        seen.append(batch)
        if len(seen) == 4:
            # all processes are told at once, as by torchrun
            signal.raise_signal(signal.SIGTERM)
        return inner(self, batch)

    task.count = stop
    assert main(arguments) == 143
    task.count = inner
    assert main(arguments) == 0
"""


@wide
def test_two_processes_learn_what_one_does_with_twice_the_batch(command, data, tmp_path):
    (tmp_path / "twice.py").write_text(TWICE)
    lines = {name: name_job(name, data(name)) for name in TASKS}
    for name, line in lines.items():
        assert command(*line, "--out", tmp_path / f"{name}1", "--quiet")[0] == 0
    halves = [[*line, "--batch-size", "8", "--out", str(tmp_path / f"{name}2")] for name, line in lines.items()]
    starter = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    done = subprocess.run(
        [*starter, tmp_path / "twice.py", json.dumps(halves)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # lightning's banner is not for us
    assert "GLOBAL_RANK" not in done.stderr
    assert "distributed_backend" not in done.stderr
    # of two processes one speaks
    assert done.stderr.count("Stopped and saved. ") == done.stderr.count("Done (all steps done). ") == len(TASKS)
    for name in TASKS:
        compare(tmp_path / f"{name}1", tmp_path / f"{name}2")


def name_job(name, file):
    job = ("--epochs", "3", "--accumulate", "2", "--average", "0.5", "--lr", "0.01")
    return [*KINDS[name].arguments, *KINDS[name].steady, "--data", str(file), *job]


def compare(one, two):
    """Complain where what one process learned is not what two did, but for rounding."""
    rows = [[json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in (one, two)]
    assert len(rows[0]) == 3
    for first, second in zip(*rows, strict=True):
        assert {**second, "seconds": 0} == pytest.approx({**first, "seconds": 0}, rel=1e-4)
    states = [load_state(folder / "resume.safetensors")["model"] for folder in (one, two)]
    for name, x in states[0].items():
        # Adam may turn a last bit of a tiny gradient into a part of a step
        assert (x - states[1][name]).abs().max() < 2e-3, name
