"""Command-line arguments as the developers' programs read them: one line of complaint, exit status 2."""

from __future__ import annotations

import argparse
import datetime
import pathlib
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line; `--help` has the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def read_count(text: str) -> int:
    """
    >>> read_count("3")
    3
    """
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def read_date(text: str) -> str:
    """
    >>> read_date("2026-01-31")
    '2026-01-31'
    """
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a date such as 2026-01-31, got {text!r}") from None


def read_path(suffix: str, text: str) -> pathlib.Path:
    """
    >>> read_path(".md", "docs/benchmarks.md").name
    'benchmarks.md'
    """
    path = pathlib.Path(text)
    if path.suffix != suffix:
        raise argparse.ArgumentTypeError(f"must end in {suffix}, got {text!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file, got the folder '{path}'")
    return path
