"""The folder of a run: what is refused, what is swept away, and that nothing stays of what came to nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pathlib

import pytest

from regard import RegardError
from regard.tasks.training.folder import RunFolder, say_why

SETTINGS = {"task": "x", "model": "a", "recipe": {"lr": 0.1, "schedule": "constant", "epochs": 3, "max_steps": None}}


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "runs" / "a", files=("tokenizer.json",))


@pytest.fixture
def begun(folder):
    with folder.hold():
        folder.begin(SETTINGS)
        folder.save({"step": 1}, [{"step": 1, "loss": 0.5}])
    return folder


def refuse(folder: RunFolder) -> str:
    with pytest.raises(RegardError) as error, folder.hold():
        pass
    return str(error.value)


def test_what_is_saved(begun):
    assert sorted(os.listdir(begun.path)) == [".lock", "metrics.jsonl", "resume.json", "resume.safetensors"]
    assert begun.is_begun()
    assert begun.load() == {"step": 1}
    assert json.loads((begun.path / "resume.json").read_text()) == SETTINGS
    assert (begun.path / "metrics.jsonl").read_text() == '{"step": 1, "loss": 0.5}\n'


def test_what_was_half_written_is_swept_away(begun):
    halves = [".resume.safetensors.a1", ".model.safetensors.b", ".config.json.c", ".metrics.jsonl.d", ".resume.json.e"]
    for name in (*halves, "notes.txt", ".mine"):
        (begun.path / name).write_text("half")
    with begun.hold():
        left = set(os.listdir(begun.path))
    assert not left & set(halves)
    # what else is there is not ours
    assert {"notes.txt", ".mine"} <= left


def test_a_folder_that_came_to_nothing_is_not_left(folder):
    def fail():
        with folder.hold():
            folder.begin(SETTINGS)
            (folder.path / "tokenizer.json").write_text("{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not folder.path.exists()
    # one that was there before stays
    folder.path.mkdir()
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert folder.path.exists()


def test_killed_before_the_first_save_it_begins_anew(folder):
    folder.path.mkdir(parents=True)
    for name in (".lock", ".resume.json.x1y2z3_4"):
        (folder.path / name).write_text("")
    with folder.hold():
        folder.begin({"other": 1})
        folder.begin(SETTINGS)
        folder.save({"step": 0}, [])
    assert json.loads((folder.path / "resume.json").read_text()) == SETTINGS


def test_two_at_once(begun):
    message = f"{begun.path} is in use by another run: wait for it, or name another folder."
    with begun.hold():
        assert refuse(begun) == message
    with begun.hold():
        pass


@pytest.mark.parametrize("other_makes", [True, False])
def test_who_comes_second_takes_nothing_away(folder, monkeypatch, other_makes):
    first, make = RunFolder(folder.path), pathlib.Path.mkdir
    held = first.hold()

    def step_aside(path, *args, **options):
        """The other comes just before the folder is made here, or just after."""
        monkeypatch.undo()
        if not other_makes:
            make(path, *args, **options)
        held.__enter__()
        first.begin(SETTINGS)
        (first.path / "tokenizer.json").write_text("{}")
        if other_makes:
            make(path, *args, **options)

    monkeypatch.setattr(pathlib.Path, "mkdir", step_aside)
    assert refuse(folder) == f"{folder.path} is in use by another run: wait for it, or name another folder."
    assert sorted(os.listdir(folder.path)) == [".lock", "resume.json", "tokenizer.json"]
    first.save({"step": 0}, [])
    held.__exit__(None, None, None)
    assert first.is_begun()


def test_a_lock_that_was_taken_away_is_none(folder, monkeypatch):
    lock = fcntl.flock

    def come_to_nothing(handle, how):
        # the other's end, between open and lock
        (folder.path / ".lock").unlink()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", come_to_nothing)
    assert refuse(folder) == f"{folder.path} is in use by another run: wait for it, or name another folder."


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_no_locks_on_this_file_system(folder, monkeypatch, number):
    def fail(handle, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    why = os.strerror(number)
    assert refuse(folder) == f"{folder.path} cannot be locked ({why}): name a folder on another file system."


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")
def test_a_place_where_nothing_can_be():
    line = refuse(RunFolder("/proc/nothing/here"))
    assert line.startswith("/proc/nothing")
    assert line.endswith("cannot be written (No such file or directory): mend that, or name another folder.")


def test_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    assert refuse(RunFolder(tmp_path / "file")) == f"{tmp_path / 'file'} is a file: name a folder for the run."
    line = refuse(RunFolder(tmp_path / "file" / "run"))
    assert line.endswith("run cannot be written (Not a directory): mend that, or name another folder.")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("")
    message = f"{tmp_path / 'photos'} holds 'cat.png' but no resume.json, so it is no run: name a new folder."
    assert refuse(RunFolder(tmp_path / "photos")) == message
    assert os.listdir(tmp_path / "photos") == ["cat.png"]


def test_a_model_without_its_state(begun):
    (begun.path / "model.safetensors").write_text("")
    (begun.path / "resume.safetensors").unlink()
    message = f"{begun.path} holds a model but no resume.safetensors to resume from: name a new folder."
    assert refuse(begun) == message


def change(**recipe):
    return {**SETTINGS, "recipe": {**SETTINGS["recipe"], **recipe}}


def test_other_settings(begun):
    for settings, name, before, now in (
        (change(lr=0.2), "lr", "0.1", "0.2"),
        ({**SETTINGS, "model": "b"}, "model", '"a"', '"b"'),
        ({**SETTINGS, "more": "x" * 50}, "more", "null", '"' + "x" * 38 + "…"),
        ({"task": "x", "recipe": SETTINGS["recipe"]}, "model", '"a"', "null"),
    ):
        with pytest.raises(RegardError) as error:
            begun.begin(settings)
        assert str(error.value) == (
            f"{begun.path} was begun with {name}={before}, now it is {now}: name a new folder, or give the same."
        )
    # where it ends is free, and kept by whoever knows from where on
    assert begun.begin(SETTINGS) == {}
    moved = begun.begin(change(epochs=9, max_steps=100))
    assert moved == {"epochs": (3, 9), "max_steps": (None, 100)}
    assert json.loads((begun.path / "resume.json").read_text()) == SETTINGS
    begun.move_end(7, moved)
    begun.move_end(8, begun.begin(change(epochs=2)))
    kept = json.loads((begun.path / "resume.json").read_text())
    assert kept.pop("moved") == [
        {"step": 7, "epochs": [3, 9], "max_steps": [None, 100]},
        {"step": 8, "epochs": [9, 2], "max_steps": [100, None]},
    ]
    assert kept == {**SETTINGS, "recipe": {**SETTINGS["recipe"], "epochs": 2, "max_steps": None}}
    assert begun.begin(change(epochs=2)) == {}


def test_a_run_of_another_task(begun):
    with pytest.raises(RegardError) as error:
        begun.begin({**SETTINGS, "task": "other", "model": "b"})
    assert str(error.value) == f"{begun.path} is a run of {SETTINGS['task']}: name a new folder."


def test_a_digest_is_named_last(begun):
    with pytest.raises(RegardError, match="was begun with model="):
        begun.begin({**SETTINGS, "data_digest": "1", "model": "b"})
    with pytest.raises(
        RegardError, match="was begun with other examples than it is given now: name a new folder, or give the same"
    ):
        begun.begin({**SETTINGS, "data_digest": "1"})


@pytest.mark.parametrize(
    ("raw", "why"), [(b"{", "JSONDecodeError"), (b"\xff", "UnicodeDecodeError"), (b"[" * 10**5, "RecursionError")]
)
def test_damaged_settings(begun, raw, why):
    file = begun.path / "resume.json"
    file.write_bytes(raw)
    with pytest.raises(RegardError) as error:
        begun.begin(SETTINGS)
    assert str(error.value) == f"{file} cannot be read ({why}): restore it, or name a new folder."


def test_settings_of_another_kind(begun):
    file = begun.path / "resume.json"
    file.write_text("[1]")
    with pytest.raises(RegardError) as error:
        begun.begin(SETTINGS)
    assert str(error.value) == f"{file} must be a JSON object, is a list: restore it."


def test_a_full_disk(begun, monkeypatch):
    def fail(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = {entry.name: entry.read_bytes() for entry in begun.path.iterdir()}
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RegardError) as error:
        begun.save({"step": 2}, [])
    assert str(error.value) == (
        f"{begun.path} cannot be written (No space left on device): mend that, and the same command resumes from"
        " the last checkpoint."
    )
    assert {entry.name: entry.read_bytes() for entry in begun.path.iterdir()} == before


def test_the_file_is_named_where_it_is_known(tmp_path):
    with pytest.raises(RegardError, match="nothing/here cannot be written"), say_why(tmp_path):
        (tmp_path / "nothing" / "here").write_text("")


def test_a_history_that_was_taken_away_comes_back(begun):
    file = begun.path / "metrics.jsonl"
    before = file.read_text()
    file.unlink()
    begun.restore_history([{"step": 1, "loss": 0.5}])
    assert file.read_text() == before
    # one that is there is left alone
    begun.restore_history([])
    assert file.read_text() == before
