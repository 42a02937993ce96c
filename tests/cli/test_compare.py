"""`regard compare`: a report, its numbers, and every way to ask for it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

SRC = pathlib.Path(__file__).parents[2] / "src"
SMALL = ("--parts", "paths", "--quick", "--widths", "8", "--width", "8")


def test_help_has_examples_and_needs_no_torch(command):
    status, out, _ = command("compare", "--help")
    assert status == 0
    assert out.count("  regard compare ") == 5
    for option in ("--out", "--quick", "--lengths", "--width", "--device", "--seed", "--parts", "--equal-parameters"):
        assert option in out


def test_a_report_and_its_numbers_are_written_and_drawn_again(command, tmp_path):
    page = tmp_path / "new" / "report.html"
    status, out, err = command("compare", *SMALL, "--out", str(page))
    assert status == 0, err
    assert "measuring paths (1 of 1)" in err
    assert f"The report:     {page}" in out
    numbers = json.loads(page.with_suffix(".json").read_text())
    assert list(numbers["parts"]) == ["paths"]
    rows = numbers["parts"]["paths"]["rows"]
    assert rows
    assert all(row["length"] == row["formula"] for row in rows)
    # nothing else is left
    assert sorted(file.name for file in page.parent.iterdir()) == ["report.html", "report.json"]
    again = tmp_path / "again.html"
    status, out, err = command("compare", "--from", str(page.with_suffix(".json")), "--out", str(again))
    assert (status, err) == (0, "")
    assert again.read_text() == page.read_text()
    # the page of these numbers by its own name: they stay what they are
    page.unlink()
    before = page.with_suffix(".json").read_text()
    status, _, err = command("compare", "--from", str(page.with_suffix(".json")), "--out", str(page))
    assert (status, err) == (0, "")
    assert page.with_suffix(".json").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "report.txt"), "--out must end in .html, got report.txt"),
        (("--lengths", "64,many"), "--lengths must be whole numbers with commas between, got '64,many'"),
        (("--lengths", "64,128"), "lengths must be at least three, to fit a power to, got [64, 128]."),
        (("--parts", "speed"), "parts must be some of operations, steps, paths"),
        (("--kernel", "4"), "a kernel must be odd and at least 3"),
        (("--width", "30"), "width 30 must be a multiple of heads=4"),
        (("--device", "nowhere"), "device 'nowhere' cannot be used"),
        (("--from", "missing.json"), "missing.json"),
        (("--from", "missing.json", "--quick"), "--from measures nothing: it has no use for --quick"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(command, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = command("compare", *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_stop_keeps_what_was_measured(tmp_path):
    page = tmp_path / "report.html"
    code = (
        "import sys\n"
        "from regard.cli import main\n"
        "from regard.compare import run as room\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "if sys.argv.pop(1) == 'stop': room.MEASURES['steps'] = (stop, 1)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    asked = ("compare", "--parts", "paths,steps,operations", *SMALL[2:], "--out", str(page))

    def run(how):
        env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", code, how, *asked]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    first = run("stop")
    assert first.returncode == 130
    assert "the same command goes on from there" in first.stderr
    assert not page.exists()
    second = run("go")
    assert second.returncode == 0, second.stderr
    assert "has operations already" in second.stderr
    assert "measuring operations" not in second.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json"]
