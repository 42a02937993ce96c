"""A comparison is measured part by part and kept, written whole and read again; what is not one is told in one line."""

import getpass
import json
import math
import pathlib
import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from regard.compare import comparison as room
from regard.compare.comparison import Comparison, describe_machine
from regard.compare.kinds import KINDS
from regard.compare.part import find_part
from regard.compare.registry import PARTS
from regard.compare.settings import Settings
from regard.core import RegardError
from tests.compare.sample import draw_page, make_sample


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
    for name in PARTS:
        for listed, fields in find_part(name).lists.items():
            yield name, listed, None
            yield name, listed, fields.split()[-1].rstrip("#?")
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


@pytest.mark.parametrize("part", [[], {"rows": [7]}, {"rows": {}}])
def test_a_part_that_is_none(tmp_path, part):
    with pytest.raises(RegardError, match="something is missing in part"):
        Comparison.load(write(tmp_path, parts={"digits": part}))


@pytest.mark.parametrize("wrong", ["much", None])
def test_something_else_where_a_number_belongs(tmp_path, wrong):
    part = make_sample("digits").parts["digits"]
    part["rows"][0]["accuracy"] = wrong
    with pytest.raises(RegardError, match="something is missing in part 'digits'"):
        Comparison.load(write(tmp_path, parts={"digits": part}))


def test_nothing_where_there_may_be_nothing(tmp_path):
    made = make_sample("paths").parts["paths"]
    made["rows"][0]["length"] = None
    assert Comparison.load(write(tmp_path, parts={"paths": made})).parts["paths"]["rows"][0]["length"] is None


def test_both_files_are_written(tmp_path):
    made = make_sample("digits")
    names = made.save(tmp_path / "new" / "report.html")
    assert names == (tmp_path / "new" / "report.html", tmp_path / "new" / "report.json")
    assert names[0].read_text(encoding="utf-8") == draw_page(made)
    assert Comparison.load(names[1]).to_json() == made.to_json()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"report.html", "report.json"}


def test_nothing_is_written_if_the_page_cannot_be_made(tmp_path, monkeypatch):
    def fail(*content):
        raise RuntimeError("no page")

    monkeypatch.setattr(room, "write_page", fail)
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


# --- measuring --------------------------------------------------------------------------------------------------------

SETTINGS = Settings(parts=("operations", "steps", "paths"))


@pytest.fixture
def ran(monkeypatch):
    """Parts that only say they ran; the one that `stops` does not."""
    names, sample = [], make_sample()

    def find(name):
        def run(settings, advance, kinds):
            if name in stops:
                raise KeyboardInterrupt
            names.append(name)
            assert kinds is KINDS
            assert torch.get_num_threads() == 1
            advance(0.5)
            return {**sample.parts[name], "seed": settings.seed}

        return replace(find_part(name), measure=run)

    stops = set()
    monkeypatch.setattr(room, "find_part", find)
    return SimpleNamespace(names=names, stops=stops)


def test_parts_run_in_order_and_are_told_of(ran):
    told = []
    found = room.measure(SETTINGS, on_progress=lambda part, share: told.append((part, share)))
    assert list(found.parts) == ran.names == ["operations", "steps", "paths"]
    assert [part for part, _ in told] == ["operations"] * 2 + ["steps"] * 2 + ["paths"] * 2 + [""]
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_what_was_measured_before_a_stop_is_not_measured_again(ran, tmp_path):
    keep = tmp_path / "report.part.json"
    ran.stops.add("paths")
    with pytest.raises(KeyboardInterrupt):
        room.measure(SETTINGS, keep=keep)
    assert list(json.loads(keep.read_text())["parts"]) == ["operations", "steps"]
    ran.stops.clear()
    found = room.measure(SETTINGS, keep=keep)
    assert ran.names == ["operations", "steps", "paths"]
    assert list(found.parts) == ran.names
    assert Comparison.load(keep) == found


def test_what_is_of_other_settings_kinds_or_another_machine_is_measured_anew(ran, tmp_path, monkeypatch):
    keep = tmp_path / "report.part.json"
    room.measure(SETTINGS, keep=keep)
    assert room.find_kept(keep, SETTINGS) is not None
    assert room.find_kept(keep, SETTINGS, {"conv": KINDS["conv"]}) is None
    other = Settings(parts=SETTINGS.parts, seed=1)
    assert room.find_kept(keep, other) is None
    assert room.measure(other, keep=keep).parts["steps"]["seed"] == 1
    assert ran.names == ["operations", "steps", "paths"] * 2
    monkeypatch.setattr(room, "describe_machine", lambda device: {"processor": "another"})
    assert room.find_kept(keep, other) is None


def test_where_nothing_can_be_written_nothing_is_measured(ran, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="cannot be written"):
        room.measure(SETTINGS, keep=tmp_path / "file" / "report.part.json")
    assert ran.names == []


def test_what_is_damaged_is_measured_anew(ran, tmp_path):
    keep = tmp_path / "report.part.json"
    keep.write_text("{")
    assert room.measure(SETTINGS, keep=keep) == Comparison.load(keep)
    assert ran.names == ["operations", "steps", "paths"]


def test_kinds_go_by_their_names(ran):
    with pytest.raises(RegardError) as error:
        room.measure(SETTINGS, {"mine": KINDS["conv"]})
    assert str(error.value) == "kinds must be by their names: 'mine' is the key of 'conv'."
    assert ran.names == []


def test_a_device_that_is_not_there_is_refused_before_any_work(ran):
    with pytest.raises(
        RegardError, match=r"device 'nowhere' cannot be used \(.*\): take cpu, or see what torch finds\."
    ):
        room.measure(Settings(device="nowhere"))
    assert ran.names == []
