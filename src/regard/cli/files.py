"""What commands read and write, and how far they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

# fewer sentences are done before a bar is read
MANY = 64


def check_place(option: str, path: Path | None) -> None:
    """Complain of a file that could not be written before there is work to lose."""
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"{option} must be a file, {path} is a folder")


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, plain or .gz."""
    from regard.data.pairs import _check_file, _read_lines

    return [line for _, line in _read_lines(_check_file(path))]


def read_stream() -> Iterator[str]:
    """The lines of stdin, as they come."""
    from regard.data.pairs import _decode

    for number, raw in enumerate(sys.stdin.buffer, 1):
        yield _decode(raw, "stdin", number)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file, whole or not at all."""
    from regard.core.files import write_whole

    try:
        write_whole(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        # by the name the user gave, not that of the file on the way
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def show_progress(title: str, total: int) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr, where that is a terminal and there is much to do; what is yielded moves it."""
    if total < MANY or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done, _: progress.update(task, completed=done)
