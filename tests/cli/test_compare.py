"""`regard compare`: a report, its numbers, and every way to ask for it."""

import json

import pytest

from regard.compare.run import MEASURES

SMALL = ("--parts", "paths", "--quick", "--widths", "8", "--width", "8")


def test_help_has_examples_and_options(command):
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


def test_a_stop_keeps_what_was_measured(command, tmp_path, monkeypatch):
    page = tmp_path / "report.html"
    asked = ("compare", "--parts", "paths,steps", *SMALL[2:], "--out", str(page))

    def stop(*_):
        raise KeyboardInterrupt

    working = MEASURES["paths"]
    monkeypatch.setitem(MEASURES, "paths", (stop, 1.0))
    status, out, err = command(*asked)
    assert (status, out) == (130, "")
    assert "the same command goes on from there" in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.part.json"]
    monkeypatch.setitem(MEASURES, "paths", working)
    monkeypatch.setitem(MEASURES, "steps", (stop, 1.0))
    status, _, err = command(*asked)
    assert status == 0, err
    assert "has steps already" in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json"]
    # what is done is measured anew, and said to be replaced
    status, _, err = command(*asked)
    assert status == 130
    assert f"{page} is there already, and is replaced at the end." in err
    assert page.exists()
