"""Input and output files of commands, and their progress bar."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
# fewer sentences are done before a bar is read
MANY = 64


def name_program() -> str:
    """How to call this program in a shell: by its path, where the shell would not find its name."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m regard"
    return os.path.relpath(called) if called.name == "regard" and not shutil.which("regard") else "regard"


def check_place(option: str, path: Path | None, force: bool = False) -> None:
    """Check that an output file can be written and overwrites none without --force, before there is work to lose."""
    if path is None:
        return
    if path.exists() and not path.is_file():
        # a file is replaced, which would be the end of a device
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise typer.BadParameter(f"{option} must be a file, {path} is {what}")
    if path.exists() and not force:
        raise typer.BadParameter(f"{option} would overwrite {path}: name another file, or add --force")
    folder = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not folder.is_dir():
        raise typer.BadParameter(f"{option} must be in a folder, {folder} is a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{option} must be in a folder that can be written, {folder} cannot")


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file, plain or .gz."""
    from regard.data.pairs import check_file
    from regard.data.pairs import read_lines as walk

    return [line for _, line in walk(check_file(path))]


def read_stream() -> Iterator[str]:
    """Read the lines of stdin, as they come."""
    from regard.data.pairs import decode_line

    for number, raw in enumerate(sys.stdin.buffer, 1):
        yield decode_line(raw, "stdin", number)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file, whole or not at all."""
    from regard.core.files import write_whole

    try:
        write_whole(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        # by the name the user gave, not that of the file on the way
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def show_progress(title: str, total: int) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, where that is a terminal and there is much to do; what is yielded moves it."""
    if total < MANY or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done, _: progress.update(task, completed=done)
