"""Two processes that `torchrun` starts, stopped and gone on with."""

import json
import os
import subprocess
import sys

import pytest

from regard.tasks.state import load_state
from tests.cli.small import PAIRS

pytest.importorskip("lightning")

TINY = ("--set", "num_hiddens=8", "--set", "embed_size=6", "--set", "dropout=0.0", "--limit", "80", "--tokens", "words",
        "--batch-size", "16", "--accelerator", "cpu")  # fmt: skip
TWICE = """
import signal, sys
from regard.cli import main
from regard.tasks.translate import TranslateTask

inner, seen = TranslateTask.count, []

def stop(self, batch):
    seen.append(batch)
    if len(seen) == 4:
        # all processes are told at once, as by torchrun
        signal.raise_signal(signal.SIGTERM)
    return inner(self, batch)

TranslateTask.count = stop
assert main(sys.argv[1:]) == 143
TranslateTask.count = inner
assert main(sys.argv[1:]) == 0
"""


def test_two_processes_learn_what_one_does_with_twice_the_batch(command, tmp_path):
    tsv = tmp_path / "pairs.tsv"
    tsv.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:120]))
    (tmp_path / "twice.py").write_text(TWICE)
    job = ("--epochs", "3", "--accumulate", "2", "--average", "0.5", "--lr", "0.01")
    assert command("train", "translate", "--data", tsv, *TINY, "--out", tmp_path / "one", *job, "--quiet")[0] == 0
    arguments = ("train", "translate", "--data", tsv, *TINY, "--batch-size", "8", "--out", tmp_path / "two", *job)
    starter = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    done = subprocess.run(
        [*starter, tmp_path / "twice.py", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # lightning's banner is not for us
    assert "GLOBAL_RANK" not in done.stderr
    assert "distributed_backend" not in done.stderr
    # of two processes one speaks
    assert done.stderr.count("Stopped and saved. ") == done.stderr.count("Done (all steps done). ") == 1
    rows = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    assert len(rows[0]) == 3
    for one, two in zip(*rows, strict=True):
        assert {**two, "seconds": 0} == pytest.approx({**one, "seconds": 0}, rel=1e-4)
    states = [load_state(tmp_path / name / "resume.safetensors")["model"] for name in ("one", "two")]
    for name, x in states[0].items():
        # Adam may turn a last bit of a tiny gradient into a part of a step
        assert (x - states[1][name]).abs().max() < 2e-3, name
