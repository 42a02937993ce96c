"""How much of a large table a run takes: a part, chosen by content, or all of it under `make test-all`."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")
# set by `make test-all`
ALL = os.environ.get("REGARD_ALL") == "1"
wide = pytest.mark.skipif(not ALL, reason="only under make test-all")


def is_taken(name: str, one_in: int) -> bool:
    """Whether a row of a table is in the part of this run: by its name, so that a new row moves no other."""
    return ALL or zlib.crc32(name.encode()) // 64 % one_in == 0


def thin(rows: Iterable[T], one_in: int) -> list[T]:
    """Every so-manieth row and the last, or all: rows that follow one another in size, say."""
    rows = list(rows)
    return rows if ALL else [row for at, row in enumerate(rows) if at % one_in == 0 or at == len(rows) - 1]
