"""A canary is heard or not, and never fails the suite."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
TOY = """
import pytest

@pytest.mark.canary(name="one", guard="a.b")
def test_still_wrong():
    assert True

@pytest.mark.canary(name="one key, bfloat16", guard="c.d")
def test_right_here():
    assert False, "off by nothing"

@pytest.mark.canary(name="other", guard="e.f")
def test_changed():
    raise RuntimeError("no such kernel\\nany more")

def test_of_our_own():
    assert {ours}
"""


def run(folder: pathlib.Path, ours: bool) -> tuple[int, str]:
    (folder / "test_toy.py").write_text(TOY.format(ours=ours))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.canaries", "-p", "no:cacheprovider", "test_toy.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, timeout=60)
    return done.returncode, done.stdout


def test_canaries_are_reported_and_do_not_fail(tmp_path):
    status, said = run(tmp_path, ours=True)
    assert status == 0, said
    assert "1 still wrong here, 2 right here" in said
    amd, h200 = "AMD EPYC (Zen 4), torch 2.13", "NVIDIA H200, torch 2.11"
    assert f"one key, bfloat16 (guard: c.d): off by nothing: the guard stays, it was wrong on {amd}; {h200}" in said
    assert "other (guard: e.f): no such kernel: the guard stays" in said


def test_other_tests_fail_as_ever(tmp_path):
    status, said = run(tmp_path, ours=False)
    assert status == 1
    assert "1 failed, 3 passed" in said
