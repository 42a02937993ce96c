"""Readers of sentence pairs: TSV, two line-aligned files, JSONL; each plain, gz or a member of a zip."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import IO

from regard.core import RegardError

Pair = tuple[str, str]
PathLike = str | os.PathLike[str]

# a sentence is never so long: more is another format, or a bomb
MOST_BYTES = 1_000_000
SURROGATE = re.compile("[\ud800-\udfff]")
TSV, JSONL = (".tsv", ".txt", ".tab"), (".jsonl", ".ndjson")
# what a broken archive raises, by what is broken
DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error, RuntimeError)


class Pairs:
    """Sentence pairs of a file, read line by line each time they are walked.

    >>> pairs = Pairs(lambda: iter([(" Hi. ", "嗨。"), ("", "")]), name="two lines")
    >>> list(pairs), pairs.blank
    ([('Hi.', '嗨。')], 1)

    Sentences are in unicode NFC and stripped. Full-width forms are kept: a tokenizer may fold them, with
    form="NFKC". A pair with an empty side is skipped; `blank` is how many were in the last whole walk.
    """

    def __init__(self, rows: Callable[[], Iterator[Pair]], *, name: str) -> None:
        self.name, self.blank = name, 0
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
            raise RegardError(f"{self.name} has no sentence pairs ({blank} blank lines): name a file that has some.")

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
    """The sentence pairs of a file, by its name: TSV (.tsv, .txt, .tab) or JSONL (.jsonl, .ndjson).

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "cmn.tsv")
    >>> _ = file.write_text("Hi.\\t嗨。\\tby Martha\\nRun.\\t你用跑的。\\tby Fucongcong\\n", encoding="utf-8")
    >>> list(read_pairs(file, swap=True))
    [('嗨。', 'Hi.'), ('你用跑的。', 'Run.')]

    `columns` are counted from 0, and a TSV may have more; `keys` are those of a JSONL object. Behind either may stand
    .gz; of a .zip the one member is read that has such a name and no leading underscore, or `member`.
    """
    name = check_file(path)
    if len(columns) != 2 or min(columns) < 0:
        raise RegardError(f"columns must be two positions counted from 0, got {columns}.")
    if name.lower().endswith(".zip"):
        member = _find_member(name, member)
    elif member is not None:
        raise RegardError(f"member={member!r} names a file in a .zip, and {name} is none: leave member out.")
    inner = (member or name).lower().removesuffix(".gz")
    if inner.endswith(TSV):
        rows = partial(_read_tsv, name, member, columns)
    elif inner.endswith(JSONL):
        rows = partial(_read_jsonl, name, member, keys)
    else:
        raise RegardError(
            f"{name} must end in .tsv, .txt, .tab, .jsonl or .ndjson (then .gz), or .zip: rename it, or give"
            " two files that are aligned line by line."
        )
    return Pairs((lambda: ((target, source) for source, target in rows())) if swap else rows, name=name)


def read_aligned(source: PathLike, target: PathLike) -> Pairs:
    """The sentence pairs of two files, line by line (plain or .gz).

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


def check_file(path: PathLike) -> str:
    """The name of a file, if it is there and no folder."""
    name = os.fspath(path)
    if not os.path.exists(name):
        raise RegardError(f"{name} does not exist: check the name.")
    if os.path.isdir(name):
        raise RegardError(f"{name} is a folder: name a file in it.")
    return name


def _read_tsv(name: str, member: str | None, columns: tuple[int, int]) -> Iterator[Pair]:
    for number, line in read_lines(name, member):
        cells = line.split("\t")
        if not line.strip():
            yield "", ""
        elif len(cells) <= max(columns):
            raise RegardError(
                f"{name}, line {number} must have at least {max(columns) + 1} columns between tabs, has {len(cells)}:"
                " mend the line, or name other columns."
            )
        else:
            yield cells[columns[0]], cells[columns[1]]


def _read_jsonl(name: str, member: str | None, keys: tuple[str, str]) -> Iterator[Pair]:
    for number, line in read_lines(name, member):
        if not line.strip():
            yield "", ""
            continue
        try:
            row = json.loads(line)
        # a number of 5,000 digits is a plain ValueError; brackets may be nested too deep
        except (ValueError, RecursionError) as error:
            why = getattr(error, "msg", None) or str(error)
            raise RegardError(f"{name}, line {number} is not JSON ({why}): mend or remove the line.") from None
        if not isinstance(row, dict):
            raise RegardError(f"{name}, line {number} must be a JSON object, is a {type(row).__name__}: mend the line.")
        for key in keys:
            if key not in row:
                has = ", ".join(map(repr, row))[:80]
                raise RegardError(
                    f"{name}, line {number} has no key {key!r} (it has {has}): mend it, or name other keys."
                )
            if not isinstance(row[key], str):
                raise RegardError(
                    f"{name}, line {number}: {key!r} must be text, is a {type(row[key]).__name__}: mend the line."
                )
            if SURROGATE.search(row[key]):
                raise RegardError(f"{name}, line {number}: {key!r} has half a surrogate pair: mend the line.")
        yield row[keys[0]], row[keys[1]]


def read_lines(name: str, member: str | None = None) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1, without their ends and the byte-order mark."""
    number = 0
    try:
        with _open(name, member) as stream:
            while raw := stream.readline(MOST_BYTES + 1):
                number += 1
                yield number, decode_line(raw, name, number)
    except DAMAGE as error:
        raise RegardError(
            f"{name} is damaged after line {number} ({error}): fetch it again, or pack it again."
        ) from None
    except OSError as error:
        raise RegardError(f"{name} cannot be read ({error.strerror or error}): check its permissions.") from None


def decode_line(raw: bytes, name: str, number: int) -> str:
    """The text of a line of a file, without its end; `number` is counted from 1."""
    if len(raw) > MOST_BYTES:
        raise RegardError(f"{name}, line {number} is longer than {MOST_BYTES:,} bytes: one pair a line.")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise RegardError(
            f"{name}, line {number} is not UTF-8 (byte 0x{raw[error.start]:02x} at {error.start}): convert the file,"
            " for example with iconv -t UTF-8."
        ) from None
    if "\0" in text:
        raise RegardError(f"{name}, line {number} has a NUL byte, so this is no text: name another file.")
    return (text.removeprefix("\ufeff") if number == 1 else text).rstrip("\r\n")


@contextmanager
def _open(name: str, member: str | None) -> Iterator[IO[bytes]]:
    if member is None:
        with gzip.open(name) if name.lower().endswith(".gz") else open(name, "rb") as stream:
            # a gzip file decompresses by the buffer, not by the line
            yield io.BufferedReader(stream) if isinstance(stream, gzip.GzipFile) else stream
    else:
        with zipfile.ZipFile(name) as archive, archive.open(member) as packed:
            yield gzip.GzipFile(fileobj=packed) if member.lower().endswith(".gz") else packed  # type: ignore[misc]


def _find_member(name: str, member: str | None) -> str:
    try:
        with zipfile.ZipFile(name) as archive:
            files = [x.filename for x in archive.infolist() if not x.is_dir()]
    except (*DAMAGE, ValueError) as error:
        raise RegardError(f"{name} is not a whole zip file ({error}): fetch it again.") from None
    except OSError as error:
        raise RegardError(f"{name} cannot be read ({error.strerror or error}): check its permissions.") from None
    if member is not None:
        if member not in files:
            raise RegardError(f"{name} has no member {member!r}, it has {', '.join(files)[:100]}: name one of these.")
        return member
    fit = [x for x in files if x.lower().removesuffix(".gz").endswith(TSV + JSONL)]
    fit = [x for x in fit if not os.path.basename(x).startswith(("_", "."))]
    if len(fit) != 1:
        raise RegardError(
            f"{name} must hold one .tsv, .txt or .jsonl file, holds {len(fit)} ({', '.join(fit or files)[:100]}): name"
            " the member to read."
        )
    return fit[0]
