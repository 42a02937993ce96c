"""Forty examples of one's own, with nothing set but the size of the model: learned if they can be, and told if not."""

import json
import random
import re

import pytest

from benchmarks.forty import pick_lines, write_pairs, write_texts
from tests.cli.kinds import ENCODER, GRU

for package in ("lightning", "torchmetrics"):
    pytest.importorskip(package)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr("regard.views.draw_curves", lambda *args: None)


def test_texts(command, tmp_path):
    for name, is_learnable in (("learn", True), ("noise", False)):
        file = tmp_path / f"{name}.csv"
        file.write_text(write_texts(random.Random(1), is_learnable))
        sizes = ("--set", "num_hiddens=16", *ENCODER[2:], "--accelerator", "cpu")
        status, _, err = command(
            "train", "classify", "--data", file, "--out", tmp_path / name, *sizes, "--epochs", "40"
        )
        found = pick_lines(err.splitlines())
        assert status == 0
        labels = "labels: neg (14), pos (14)" if is_learnable else "labels: "
        assert found["data"].startswith(f"28 texts for training, 6 for validation, 6 for the test; {labels}")
        assert found["plan"] == (
            "Batches of 4, 7 steps per epoch, 40 epochs: 280 steps, 28 of them warmup; validation every 14 steps."
        )
        assert "valid accuracy" in err
        assert "(baseline 50)" in err
        right, usual = (
            int(x) for x in re.search(r"texts (\d+) are right .* is right for (\d+) ", found["outcome"]).groups()
        )
        assert usual == 3
        assert (right == 6) == is_learnable
        assert found["told"] == ("-" if is_learnable else "nothing was learned")
        # what is advised works
        status, out, _ = command("evaluate", tmp_path / name, "--json", "--device", "cpu")
        assert (status, json.loads(out)["count"], json.loads(out)["baseline"]) == (0, 6, 50.0)


def test_what_runs_are_begun_with_stays(command, complaint, tmp_path):
    file, out = tmp_path / "pairs.tsv", tmp_path / "run"
    file.write_text(write_pairs(random.Random(1), True))
    arguments = ("train", "translate", "--data", file, "--out", out, *GRU, "--accelerator", "cpu")
    status, _, err = command(*arguments, "--max-steps", "9")
    assert (status, err.splitlines()[1]) == (
        0, "Batches of 4, 7 steps per epoch, ended by max_steps: 9 steps; validation every 7 steps."
    )  # fmt: skip
    # the same command, done; then extended, by either; nothing else may change
    assert command(*arguments)[2].startswith("Done (all steps done). ")
    status, _, err = command(*arguments, "--max-steps", "11")
    assert (status, err.splitlines()[0]) == (0, "From step 9 on: max_steps 9 → 11.")
    status, _, err = command(*arguments, "--epochs", "2", "--patience", "5")
    assert (status, err.splitlines()[0]) == (0, "From step 11 on: max_steps 11 → none, patience none → 5.")
    kept = json.loads((out / "resume.json").read_text())
    assert [row["step"] for row in kept["moved"]] == [9, 11]
    assert (kept["recipe"]["epochs"], kept["recipe"]["warmup"], kept["batch_size"]) == (2, 0, 4)
    assert "was begun with batch_size=4, now it is 8" in complaint(*arguments, "--batch-size", "8")
    assert "was begun with warmup=0, now it is 3" in complaint(*arguments, "--warmup", "3")
