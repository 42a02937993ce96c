"""Readers of sentence pairs (parallel text): TSV, two line-aligned files, JSONL; plain, gz or a member of a zip."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest

from regard.core import RegardError
from regard.data.cells import read_columns
from regard.data.lines import (
    JSONL,
    MOST_BYTES,
    TSV,
    PathLike,
    check_file,
    decode_line,
    find_file,
    read_lines,
    read_objects,
    take_text,
)

__all__ = [
    "MOST_BYTES",
    "Pair",
    "Pairs",
    "PathLike",
    "check_file",
    "decode_line",
    "read_aligned",
    "read_lines",
    "read_pairs",
]

Pair = tuple[str, str]


class Pairs:
    """The sentence pairs of a file, read lazily, each time they are iterated.

    >>> pairs = Pairs(lambda: iter([(" Hi. ", "嗨。"), ("", "")]), name="two lines")
    >>> list(pairs), pairs.blank
    ([('Hi.', '嗨。')], 1)

    Sentences are in unicode NFC and stripped. Full-width forms are kept: a tokenizer may fold them, with
    form="NFKC". A pair with an empty side is skipped; `blank` is how many were in the last whole walk. `kind` says
    what the pairs are, in the complaint that there are none.
    """

    def __init__(self, rows: Callable[[], Iterator[Pair]], *, name: str, kind: str = "sentence pairs") -> None:
        self.name, self.kind, self.blank = name, kind, 0
        self._rows = rows

    def __iter__(self) -> Iterator[Pair]:
        found = blank = 0
        for row in self._rows():
            source, target = (unicodedata.normalize("NFC", text).strip() for text in row)
            if source and target:
                found += 1
                yield source, target
            else:
                blank += 1
        self.blank = blank
        if not found:
            raise RegardError(f"{self.name} has no {self.kind} ({blank} blank lines): name a file that has some.")

    def __repr__(self) -> str:
        return f"Pairs({self.name})"


def read_pairs(
    path: PathLike,
    *,
    columns: tuple[int, int] = (0, 1),
    keys: tuple[str, str] = ("source", "target"),
    swap: bool = False,
    member: str | None = None,
) -> Pairs:
    """Read sentence pairs from a file, by its name: TSV (.tsv, .txt, .tab) or JSONL (.jsonl, .ndjson).

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "cmn.tsv")
    >>> _ = file.write_text("Hi.\\t嗨。\\tby Martha\\nRun.\\t你用跑的。\\tby Fucongcong\\n", encoding="utf-8")
    >>> list(read_pairs(file, swap=True))
    [('嗨。', 'Hi.'), ('你用跑的。', 'Run.')]

    `columns` are counted from 0, and a TSV may have more; `keys` are those of a JSONL object. Behind either may stand
    .gz; of a .zip the one member is read that has such a name and no leading underscore, or `member`.
    """
    # named first: a missing file is the commoner mistake
    check_file(path)
    if len(columns) != 2 or min(columns) < 0:
        raise RegardError(f"columns must be two positions counted from 0, got {columns}.")
    name, member, inner = find_file(path, member, TSV + JSONL, ", or give two files that are aligned line by line")
    if inner.endswith(TSV):
        rows = partial(_read_tsv, name, member, inner, columns)
    else:
        rows = partial(_read_jsonl, name, member, keys)
    return Pairs((lambda: ((target, source) for source, target in rows())) if swap else rows, name=name)


def read_aligned(source: PathLike, target: PathLike) -> Pairs:
    """Read sentence pairs from two files that are aligned line by line (plain or .gz).

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.en").write_text("a dog\\na cat\\n"), (folder / "a.de").write_text("ein Hund\\neine Katze\\n")
    >>> list(read_aligned(folder / "a.en", folder / "a.de"))
    [('a dog', 'ein Hund'), ('a cat', 'eine Katze')]
    """
    first, second = check_file(source), check_file(target)

    def rows() -> Iterator[Pair]:
        for left, right in zip_longest(read_lines(first), read_lines(second)):
            if left is None or right is None:
                short, long, line = (first, second, right) if left is None else (second, first, left)
                raise RegardError(
                    f"{first} and {second} must have as many lines: {short} ends after line {line[0] - 1}, {long}"
                    " goes on."
                )
            yield left[1], right[1]

    return Pairs(rows, name=f"{first} with {second}")


def _read_tsv(name: str, member: str | None, inner: str, columns: tuple[int, int]) -> Iterator[Pair]:
    for _, (source, target) in read_columns(name, member, inner, columns):
        yield source, target


def _read_jsonl(name: str, member: str | None, keys: tuple[str, str]) -> Iterator[Pair]:
    for number, row in read_objects(name, member, keys):
        yield take_text(row, keys[0], name, number), take_text(row, keys[1], name, number)
