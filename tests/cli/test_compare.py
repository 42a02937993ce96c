"""`regard compare`: a report, its numbers, and every way to ask for it."""

import json
from dataclasses import replace

import pytest

from regard.compare import comparison
from regard.compare.part import find_part

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
        (("--device", "meta"), "device 'meta' cannot be used (it is neither cpu nor cuda)"),
        (("--seed", "99999999999"), "seed must be below 2**32, got 99999999999."),
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

    stops = {"paths"}

    def stop(*_):
        raise KeyboardInterrupt

    def find(name):
        return replace(find_part(name), measure=stop) if name in stops else find_part(name)

    monkeypatch.setattr(comparison, "find_part", find)
    status, out, err = command(*asked)
    assert (status, out) == (130, "")
    assert "the same command goes on from there" in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html.part.json"]
    stops = {"steps"}
    status, _, err = command(*asked)
    assert status == 0, err
    assert "has steps already" in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json"]
    # what is done is measured anew, and said to be replaced
    status, _, err = command(*asked)
    assert status == 2
    assert f"--out would overwrite {page}: name another file, or add --force" in err
    status, _, err = command(*asked, "--force")
    assert status == 130
    assert f"{page} is there already, and is replaced at the end." in err
    assert page.exists()


@pytest.mark.parametrize("name", ["report.html", "report.json", "report.html.part.json"])
def test_what_cannot_be_written_is_said_before_any_work(command, name, tmp_path):
    (tmp_path / name).mkdir()
    status, out, err = command("compare", *SMALL, "--out", str(tmp_path / "report.html"))
    assert (status, out) == (2, "")
    assert f"{name} is a folder" in err


def test_a_file_of_something_else_is_not_replaced(command, tmp_path):
    other = tmp_path / "package.json"
    other.write_text("{}")
    asked = ("compare", *SMALL, "--out", str(tmp_path / "package.html"))
    for options, said in (((), f"would overwrite {other}"), (("--force",), "package.json is not a comparison")):
        status, out, err = command(*asked, *options)
        assert (status, out) == (2, "")
        assert said in err
    assert other.read_text() == "{}"


def test_numbers_that_cannot_be_drawn_are_damaged(command, tmp_path):
    numbers = tmp_path / "numbers.json"
    assert command("compare", *SMALL, "--out", str(numbers.with_suffix(".html")))[0] == 0
    content = json.loads(numbers.read_text())
    content["settings"]["dims"] = True
    numbers.write_text(json.dumps(content))
    status, out, err = command("compare", "--from", str(numbers), "--out", str(tmp_path / "again.html"))
    assert (status, out) == (2, "")
    assert f"{numbers} is damaged, it cannot be drawn: run regard compare again." in err
    assert not (tmp_path / "again.html").exists()
