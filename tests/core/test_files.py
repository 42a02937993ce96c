"""Whole or not at all, whatever happens in between."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import regard
from regard.core.files import write_whole

SRC = pathlib.Path(regard.__file__).parents[1]


@pytest.mark.parametrize("content", ["café 西安\n", b"\x00\xff", ""])
def test_content_and_folders(tmp_path, content):
    path = tmp_path / "a" / "b" / "file"
    write_whole(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [x.name for x in path.parent.iterdir()] == ["file"]


def test_it_is_as_readable_as_other_files(tmp_path):
    (tmp_path / "plain").write_text("")
    write_whole(tmp_path / "whole", "")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failure_leaves_the_old_and_no_scraps(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    write_whole(path, "old")

    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new" * 1000)
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [x.name for x in tmp_path.iterdir()] == ["file"]


def test_an_interrupt_when_it_has_its_name(tmp_path, monkeypatch):
    replace = os.replace

    def stop(*args):
        replace(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt) as error:
        write_whole(tmp_path / "file", "new")
    # and not in the course of another error
    assert error.value.__context__ is None
    assert [(x.name, x.read_text()) for x in tmp_path.iterdir()] == [("file", "new")]


def test_content_is_on_disk_before_the_name(tmp_path, monkeypatch):
    done = []
    for step in ("fsync", "replace"):
        real = getattr(os, step)
        monkeypatch.setattr(os, step, lambda *a, real=real, step=step: (done.append(step), real(*a))[1])
    write_whole(tmp_path / "file", "x")
    assert done == ["fsync", "replace", "fsync"]


def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file"
    code = (
        "import pathlib, sys; from regard.core.files import write_whole\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "for turn in range(10**6): write_whole(path, str(turn % 10) * 10**6)\n"
    )
    for wait in (0.0, 0.003, 0.011):
        child = subprocess.Popen([sys.executable, "-c", code, str(path)], env={**os.environ, "PYTHONPATH": str(SRC)})
        while not path.exists():
            time.sleep(0.01)
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
        found = path.read_text()
        assert len(found) == 10**6
        assert len(set(found)) == 1
        path.unlink()
