"""What every command is run with."""

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


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory) -> pathlib.Path:
    """A run, to be read only."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    build(ends=0.5).save(folder)
    return folder


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
