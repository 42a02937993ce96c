"""What commands load before they answer: time is noisy, modules can be counted."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.cli.kinds import KINDS

for package in ("lightning", "torchmetrics"):
    pytest.importorskip(package)

SRC = pathlib.Path(__file__).parents[2] / "src"
# each takes longer than all of regard, and none is needed to answer
HEAVY = ("torch._dynamo", "sympy", "lightning", "torchmetrics", "torch.distributed.checkpoint", "matplotlib", "triton",
         "transformers", "pandas", "sklearn")  # fmt: skip
# one process loads torch or nothing, and a copy of it runs each command: its status, and what was loaded for it
PROGRAM = """
import json, os, sys
lines, has_torch = json.loads(sys.argv[1]), sys.argv[2] == "torch"
if has_torch:
    import torch
before = set(sys.modules)
import regard.cli.app
from regard.cli import main
for line in lines:
    ours, theirs = os.pipe()
    if os.fork() == 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")
        status = main(line)
        os.write(theirs, json.dumps([status, sorted(set(sys.modules) - before)]).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as stream:
        print(stream.read())
    os.wait()
"""


def load(lines: list[list[str]], kind: str) -> list[tuple[int, list[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(lines), kind], env={"PYTHONPATH": str(SRC), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork, which this system has not")
def test_answers_load_torch_and_little_else(finished):
    texts = {"pretrain": "two ___ to xi'an"}
    lines = [
        [KINDS[name].use.split()[0], str(finished(name)), texts.get(name, "two tickets to xi'an"), "--device", "cpu"]
        for name in KINDS
    ]
    lines.append(["embed", str(finished("classify")), "two tickets", "--device", "cpu"])
    found = load(lines, "torch")
    assert len(found) == len(lines)
    for line, (status, modules) in zip(lines, found, strict=True):
        assert status == 0, line
        assert [name for name in HEAVY if name in modules] == [], line
        # 335 to 370 today, most of them numpy's, typer's and regard's own
        assert len(modules) < 450, line


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork, which this system has not")
def test_what_is_wrong_is_told_without_torch(finished, tmp_path):
    run, nowhere = str(finished("tag")), str(tmp_path / "none")
    train = [["train", name, "--out", nowhere] for name in ("translate", "tag", "classify", "summarize", "pretrain")]
    wrong = [
        ["translate", nowhere, "a"], ["translate", run, "a"], ["tag", run, "--input", nowhere], ["classify", run, "a"],
        ["tag", run, "a", "--device", "tpu"], ["fill", f"hf:{nowhere}", "a"], ["embed", nowhere, "a"],
        ["evaluate", nowhere], ["evaluate", run, "--data", nowhere], ["look", nowhere, "a"],
        *(["compare", "--out", f"{nowhere}.html", *more] for more in (["--kernel", "4"], ["--parts", "speed"])),
        *([*line, "--data", nowhere] for line in train),
        *([*line, *more] for line, more in zip(train, (
            ["--schedule", "none"], ["--precision", "8"], ["--preset", "huge"], ["--set", "x=1"], ["--devices", "x"],
        ), strict=True)),
    ]  # fmt: skip
    helps = [["--help"], ["--version"], [*train[0][:2], "--help"]]
    wanted = [*helps, *([*line, "--settings"] for line in train[:2])]
    lines = [*wrong, *wanted]
    found = load(lines, "bare")
    assert len(found) == len(lines)
    for line, (status, modules) in zip(lines, found, strict=True):
        assert status == (2 if line in wrong else 0), line
        assert [name for name in ("torch", "numpy", *HEAVY) if name in modules] == [], line
        # help alone is 237, a run's settings and data 277
        assert len(modules) < (260 if line in helps else 310), line
