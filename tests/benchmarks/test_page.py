"""The benchmark of the page: it measures what it says, and says so where there is nothing to measure with."""

import importlib.util
import os
import subprocess
import sys

import pytest

from benchmarks import page
from tests.wide import wide
from tools import page_shots
from tools.browser import find_chromium

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")])}


@wide
def test_a_small_page_is_measured(tmp_path):
    if importlib.util.find_spec("playwright") is None or find_chromium() is None:
        pytest.skip("no playwright or no Chromium is installed")
    # in a process of its own: playwright runs once in each, and the browser tests may have it here
    options = ["--tokens", "300", "--heads", "1", "--repeat", "1", "--keep", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "benchmarks.page", *options], capture_output=True, text=True, env=ENV)
    assert done.returncode in (0, 1), done.stderr
    said = done.stdout
    assert "Details of the 1 most interesting" in said
    assert "of 144 heads" in said
    cells = [cell.strip() for cell in said.splitlines()[-1].strip("|").split("|")]
    assert cells[0] == "300"
    assert float(cells[1]) == pytest.approx((tmp_path / "300.html").stat().st_size / 1e6, abs=0.01)
    # hidden or failed rows would wait for three seconds each
    assert all(0 < float(cell.split()[0]) < 2000 for cell in cells[4:])


@pytest.mark.parametrize("program", [lambda: page.main([]), lambda: page_shots.main(["nowhere"])])
def test_without_a_browser_there_is_one_line(program, capsys, monkeypatch):
    for module in (page, page_shots):
        monkeypatch.setattr(module, "find_chromium", lambda: None)
    assert program() == 2
    assert capsys.readouterr().err == (
        "no Chromium is installed: put one on PATH, or its program into REGARD_CHROMIUM\n"
    )


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"size": 10_000_001}, False),
        ({"paint": [0.1, 1.1, 1.2]}, False),
        ({"hover": {"map": [0.01], "text": [0.06, 0.07, 0.01]}}, False),
    ],
)
def test_what_is_too_large_or_slow_is_no_good(change, good):
    reading = {"tokens": 8192, "size": 9_000_000, "build": 1.0, "paint": [0.9, 0.5, 3.0],
               "hover": {"map": [0.01], "text": [0.04]}, "note": ""}  # fmt: skip
    assert page.Reading(**reading | change).is_good is good
