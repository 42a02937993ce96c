"""A comparison is written whole and read again; what is not one is told in one line."""

import getpass
import json
import math
import pathlib
import socket

import pytest
import torch

from regard.compare.comparison import FIELDS, Comparison, describe_machine
from regard.compare.report import page
from regard.compare.settings import PARTS
from regard.core import RegardError
from tests.compare.sample import make_sample


def write(folder, **changes):
    content = {"format": 1, "settings": {}, "machine": {}, "parts": {}} | changes
    place = folder / "report.json"
    place.write_text(json.dumps(content), encoding="utf-8")
    return place


def test_json_is_read_as_it_was_written(tmp_path):
    made = make_sample()
    place = tmp_path / "report.json"
    place.write_text(made.to_json(), encoding="utf-8")
    again = Comparison.load(place)
    assert again.parts == json.loads(json.dumps(made.parts))
    assert list(again.parts) == list(PARTS)
    assert again.machine == made.machine
    assert again.to_json() == made.to_json()


def test_json_does_not_depend_on_the_order_of_anything():
    made = make_sample("steps", "digits")
    turned = Comparison(
        dict(reversed(made.settings.items())), dict(reversed(made.machine.items())), dict(reversed(made.parts.items()))
    )
    assert turned.to_json() == made.to_json()


def test_what_is_not_finite_is_null():
    made = Comparison({}, {}, {"digits": {"rows": [{"accuracy": math.nan}, {"accuracy": -math.inf}]}})
    text = made.to_json()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert [row["accuracy"] for row in json.loads(text)["parts"]["digits"]["rows"]] == [None, None]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RegardError, match=r"report.json cannot be read \(No such file or directory\)\.$"):
        Comparison.load(tmp_path / "report.json")


@pytest.mark.parametrize("content", [b"", b'{"format": 1, "sett', b"\xff\xfe\x00", b"[" * 100_000])
def test_a_damaged_file(tmp_path, content):
    place = tmp_path / "report.json"
    place.write_bytes(content)
    with pytest.raises(RegardError, match=r"report.json is damaged, it is not JSON: run regard compare again."):
        Comparison.load(place)


def test_a_newer_file(tmp_path):
    with pytest.raises(
        RegardError, match=r"report.json has format 2, this regard reads up to 1: install a newer regard."
    ):
        Comparison.load(write(tmp_path, format=2))


@pytest.mark.parametrize("changes", [{"format": None}, {"format": "1"}, {"settings": []}, {"machine": None}])
def test_a_foreign_file(tmp_path, changes):
    with pytest.raises(RegardError, match=r"report.json is not a comparison: give the JSON that regard compare wrote."):
        Comparison.load(write(tmp_path, **changes))


def list_damages():
    """Of every part: something that is not there, or is no number."""
    for name, lists in FIELDS.items():
        for listed, fields in lists.items():
            yield name, listed, None
            yield name, listed, fields[-1]
    yield "order", "chance", None
    yield "recall", "reach", None


@pytest.mark.parametrize(("name", "listed", "field"), list(list_damages()))
def test_a_part_in_which_something_is_missing(tmp_path, name, listed, field):
    part = make_sample(name).parts[name]
    if field is None:
        del part[listed]
    else:
        del part[listed][-1][field]
    with pytest.raises(
        RegardError, match=f"report.json is damaged, something is missing in part '{name}': compare again."
    ):
        Comparison.load(write(tmp_path, parts={name: part}))


@pytest.mark.parametrize("parts", [{"other": {}}, {"digits": []}, {"digits": {"rows": [7]}}])
def test_a_part_that_is_none(tmp_path, parts):
    with pytest.raises(RegardError, match="something is missing in part"):
        Comparison.load(write(tmp_path, parts=parts))


def test_a_text_where_a_number_belongs(tmp_path):
    part = make_sample("digits").parts["digits"]
    part["rows"][0]["accuracy"] = "much"
    with pytest.raises(RegardError, match="something is missing in part 'digits'"):
        Comparison.load(write(tmp_path, parts={"digits": part}))


def test_both_files_are_written(tmp_path):
    made = make_sample("digits")
    names = made.save(tmp_path / "new" / "report.html")
    assert names == (tmp_path / "new" / "report.html", tmp_path / "new" / "report.json")
    assert names[0].read_text(encoding="utf-8") == page.write_page(made)
    assert Comparison.load(names[1]).to_json() == made.to_json()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"report.html", "report.json"}


def test_nothing_is_written_if_the_page_cannot_be_made(tmp_path, monkeypatch):
    def fail(comparison):
        raise RuntimeError("no page")

    monkeypatch.setattr(page, "write_page", fail)
    with pytest.raises(RuntimeError, match="no page"):
        make_sample("digits").save(tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["report", "report.json", "report.png"])
def test_the_page_has_the_ending_of_one(tmp_path, name):
    with pytest.raises(
        RegardError, match=rf"{name} must end in .html: the page is written there, and its numbers beside it.$"
    ):
        make_sample("digits").save(tmp_path / name)


def test_the_machine_is_described_and_its_owner_is_not():
    machine = describe_machine("cpu")
    assert machine["torch"] == torch.__version__
    assert machine["threads"] == torch.get_num_threads()
    assert machine["processor"]
    text = json.dumps(machine)
    for secret in (socket.gethostname(), getpass.getuser(), str(pathlib.Path.home()), str(pathlib.Path.cwd())):
        assert len(secret) < 4 or secret not in text
