"""What every command is run with."""

import functools
import io
import os
import pathlib
import sys

import pytest

from regard.cli import main
from tests.cli.small import build


class Stdin(io.TextIOWrapper):
    is_typed = False

    def isatty(self) -> bool:
        return self.is_typed


@pytest.fixture(autouse=True)
def program(monkeypatch) -> None:
    """Commands call themselves regard, however the tests were started."""
    monkeypatch.setattr(sys, "argv", ["bin/pytest", *sys.argv[1:]])


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory) -> pathlib.Path:
    """A run, to be read only."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    build(ends=0.5).save(folder)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The file that a task learns from, by the task's name."""
    from tests.cli.kinds import KINDS

    @functools.cache
    def write(name: str) -> pathlib.Path:
        file = tmp_path_factory.mktemp("data") / KINDS[name].file
        file.write_bytes(KINDS[name].data)
        return file

    return write


@pytest.fixture(scope="session")
def finished(tmp_path_factory, data):
    """A run of a task that is done, to be read only, by the task's name."""
    from tests.cli.kinds import KINDS

    @functools.cache
    def train(name: str) -> pathlib.Path:
        folder = tmp_path_factory.mktemp("runs") / name
        arguments = ("--data", str(data(name)), "--out", str(folder), "--epochs", "2", "--quiet")
        with pytest.MonkeyPatch.context() as patch:
            # nobody looks at these
            patch.setattr("regard.views.draw_curves", lambda *args: None)
            assert main([*KINDS[name].arguments, *arguments]) == 0
        return folder

    return train


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs a command line in this process: its status, stdout and stderr."""

    def call(*arguments, stdin: bytes = b"", is_typed: bool = False) -> tuple[int, str, str]:
        stream = Stdin(io.BytesIO(stdin), encoding="utf-8")
        stream.is_typed = is_typed
        monkeypatch.setattr(sys, "stdin", stream)
        status = main([os.fspath(x) for x in arguments])
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def complaint(command):
    """Runs a command line that is wrong: the one line it says."""

    def call(*arguments, stdin: bytes = b"") -> str:
        status, out, err = command(*arguments, stdin=stdin)
        assert (status, out) == (2, ""), err
        assert err.endswith("\n")
        assert err.count("\n") == 1, err
        assert "Traceback" not in err
        assert len(err) <= 201 + 2 * 100, err
        return err.strip()

    return call
