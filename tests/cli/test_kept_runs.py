"""Runs that earlier versions wrote open, evaluate, and go on to the same end."""

from __future__ import annotations

import json
import pathlib
import re
import zipfile

import pytest

from regard.cli import main

KEPT = pathlib.Path(__file__).parents[1] / "kept"
EXPECTED = {
    (file.name, name): facts
    for file in sorted(KEPT.glob("*.zip"))
    for name, facts in json.loads(zipfile.ZipFile(file).read("expected.json")).items()
}
ASK = {
    "translate": ["translate", "run", "two tickets to xi'an"],
    "transformer": ["translate", "run", "two tickets to xi'an"],
    "tag": ["tag", "run", "two tickets to xi'an"],
    "pretrain": ["fill", "run", "two ___ to xi'an"],
}


def read_history(folder: pathlib.Path) -> list[dict[str, float]]:
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]


def read_score(line: str) -> tuple[str, float]:
    label, score = re.match(r"(.+?) {2,}([\d.]+)", line).groups()
    return label, float(score)


@pytest.mark.parametrize(("file", "name"), EXPECTED, ids=["-".join(pair) for pair in EXPECTED])
def test_a_kept_run_opens_and_goes_on(file, name, tmp_path, monkeypatch, capsys):
    facts = EXPECTED[file, name]
    zipfile.ZipFile(KEPT / file).extractall(tmp_path)
    monkeypatch.chdir(tmp_path / name)
    monkeypatch.setattr("regard.views.draw_curves", lambda *args: None)
    assert main(ASK[name]) == 0
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 0
    # a word in thirty may tip on another machine
    said = [read_score(line) for line in capsys.readouterr().out.splitlines()[:2]]
    assert said == [
        (label, pytest.approx(score, rel=0.05, abs=4)) for label, score in map(read_score, facts["evaluate"])
    ]
    assert main([*facts["arguments"], "--data", facts["file"], "--out", "run", "--quiet"]) == 0
    expected = [{key: value for key, value in row.items() if key != "seconds"} for row in facts["history"]]
    # the numbers of another machine differ in their last digits
    assert read_history(tmp_path / name) == [pytest.approx(row, rel=1e-3) for row in expected]
    assert main(["evaluate", "run"]) == 0


def test_there_are_some():
    assert len(EXPECTED) >= 4
