"""Parts run in their order, are told of, and are kept when a comparison is stopped."""

import json

import pytest

from regard import RegardError
from regard.compare import run as room
from regard.compare.comparison import Comparison
from regard.compare.kinds import KINDS
from regard.compare.settings import Settings
from tests.compare.sample import make_sample

SETTINGS = Settings(parts=("operations", "steps", "paths"))


@pytest.fixture
def ran(monkeypatch):
    """Parts that only say they ran."""
    names, sample = [], make_sample()

    def stand_in(part):
        def run(settings, advance, kinds):
            names.append(part)
            assert kinds is KINDS
            advance(0.5)
            return {**sample.parts[part], "seed": settings.seed}

        return run

    shares = {part: share for part, (_, share) in room.MEASURES.items()}
    monkeypatch.setattr(room, "MEASURES", {part: (stand_in(part), share) for part, share in shares.items()})
    return names


def stop(settings, advance, kinds):
    raise KeyboardInterrupt


def test_parts_run_in_order_and_are_told_of(ran):
    told = []
    found = room.measure(SETTINGS, on_progress=lambda part, share: told.append((part, share)))
    assert list(found.parts) == ran == ["operations", "steps", "paths"]
    assert [part for part, _ in told] == ["operations"] * 2 + ["steps"] * 2 + ["paths"] * 2 + [""]
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_what_was_measured_before_a_stop_is_not_measured_again(ran, tmp_path, monkeypatch):
    keep = tmp_path / "report.part.json"
    working = room.MEASURES["paths"]
    monkeypatch.setitem(room.MEASURES, "paths", (stop, 1.0))
    with pytest.raises(KeyboardInterrupt):
        room.measure(SETTINGS, keep=keep)
    assert list(json.loads(keep.read_text())["parts"]) == ["operations", "steps"]
    monkeypatch.setitem(room.MEASURES, "paths", working)
    found = room.measure(SETTINGS, keep=keep)
    assert ran == ["operations", "steps", "paths"]
    assert list(found.parts) == ran
    assert Comparison.load(keep) == found


def test_what_is_of_other_settings_is_measured_anew(ran, tmp_path):
    keep = tmp_path / "report.part.json"
    room.measure(SETTINGS, keep=keep)
    assert room.find_kept(keep, SETTINGS) is not None
    other = Settings(parts=SETTINGS.parts, seed=1)
    assert room.find_kept(keep, other) is None
    assert room.measure(other, keep=keep).parts["steps"]["seed"] == 1
    assert ran == ["operations", "steps", "paths"] * 2


def test_what_is_of_other_kinds_is_measured_anew(ran, tmp_path, monkeypatch):
    keep = tmp_path / "report.part.json"
    room.measure(SETTINGS, keep=keep)
    own = {"conv": KINDS["conv"]}
    assert room.find_kept(keep, SETTINGS, own) is None
    assert room.find_kept(keep, SETTINGS, dict(KINDS)) is not None


def test_where_nothing_can_be_written_nothing_is_measured(ran, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="cannot be written"):
        room.measure(SETTINGS, keep=tmp_path / "file" / "report.part.json")
    assert ran == []


def test_what_is_damaged_is_measured_anew(ran, tmp_path):
    keep = tmp_path / "report.part.json"
    keep.write_text("{")
    assert room.measure(SETTINGS, keep=keep) == Comparison.load(keep)
    assert ran == ["operations", "steps", "paths"]


def test_kinds_go_by_their_names(ran):
    with pytest.raises(RegardError) as error:
        room.measure(SETTINGS, {"mine": KINDS["conv"]})
    assert str(error.value) == "kinds must be by their names: 'mine' is the key of 'conv'."
    assert ran == []


def test_what_is_of_another_machine_is_measured_anew(ran, tmp_path, monkeypatch):
    keep = tmp_path / "report.part.json"
    room.measure(SETTINGS, keep=keep)
    monkeypatch.setattr(room, "describe_machine", lambda device: {"processor": "another"})
    assert room.find_kept(keep, SETTINGS) is None


def test_a_device_that_is_not_there_is_refused_before_any_work(ran):
    with pytest.raises(
        RegardError, match=r"device 'nowhere' cannot be used \(.*\): take cpu, or see what torch finds\."
    ):
        room.measure(Settings(device="nowhere"))
    assert ran == []
