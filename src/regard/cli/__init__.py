"""The command line: `regard`, or `python -m regard`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from regard.extras import install
from regard.processor import cap_instructions

# what a command needs beyond torch, and the extra that has all of it
EXTRAS = {
    **dict.fromkeys(("lightning", "matplotlib", "rich", "sacrebleu", "safetensors", "tokenizers", "typer"), "train"),
    **dict.fromkeys(("scipy", "sklearn"), "compare"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; its exit status: 0, 2 after an error of the user's, 130 after Ctrl-C.

    >>> main(["--version"])
    regard 0.1.0
    0

    What can be mended is said in one line on stderr. Any other exception is a bug, and shows where.
    """
    for stream in (sys.stdout, sys.stderr):
        # what is read and said is UTF-8, whatever the locale
        if (stream.encoding or "").lower() not in ("utf-8", "utf8") and hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8")
    with _note_interrupts() as interrupts:
        try:
            arguments = sys.argv[1:] if arguments is None else list(arguments)
            # help and version need no torch, whatever it may use
            if not {"-h", "--help", "--version"}.intersection(arguments) and arguments and (said := cap_instructions()):
                print(said, file=sys.stderr)
            # typer may be missing
            from regard.cli.app import run

            status = run(arguments)
            # a full disk or a closed pipe may show only now
            sys.stdout.flush()
            return status
        except KeyboardInterrupt:
            return _complain("Stopped.", 130)
        except Exception as error:
            # what is interrupted while it is imported may raise anything, as numpy does
            return _complain("Stopped.", 130) if interrupts else _tell(error)


@contextmanager
def _note_interrupts() -> Iterator[list[int]]:
    """Keep count of Ctrl-C, which raises KeyboardInterrupt as ever."""
    interrupts: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    is_ours = current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _tell(error: Exception) -> int:
    """Say in one line what can be mended; any other exception is a bug."""
    if isinstance(error, BrokenPipeError):
        _close_output()
        return 1
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise error
        return _complain(f"This command needs the package {package}: {install(EXTRAS[package])}.")
    if isinstance(error, OSError):
        where = "the output" if error.filename is None else os.fsdecode(error.filename)
        if error.filename is None:
            _close_output()
        why = error.strerror or error
        return _complain(f"{where} cannot be used ({why}): check the name, its permissions and the free space.")
    if isinstance(error, ValueError):
        from regard.core import RegardError

        if isinstance(error, RegardError):
            return _complain(str(error))
    raise error


def _complain(message: str, status: int = 2) -> int:
    # a file's name may hold a line break
    print(" ".join(message.split()), file=sys.stderr)
    return status


def _close_output() -> None:
    """Redirect stdout to nowhere: Python flushes it again when it ends, and would complain."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        # stdout is no file, as in a test
        pass
