"""Lines and JSON objects of text files, plain, gz or a member of a zip; each error names the file and the line."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from regard.core import RegardError

PathLike = str | os.PathLike[str]

# a sentence is never so long: more is another format, or a bomb
MOST_BYTES = 1_000_000
SURROGATE = re.compile("[\ud800-\udfff]")
TSV, JSONL = (".tsv", ".txt", ".tab"), (".jsonl", ".ndjson")
# what a broken archive raises, by what is broken
DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error, RuntimeError)


def find_file(path: PathLike, member: str | None, ends: tuple[str, ...], hint: str = "") -> tuple[str, str | None, str]:
    """Find a file that ends in one of `ends`, then perhaps .gz: its name, its member of a zip, and what says its kind.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "words.tsv.gz")
    >>> file.touch()
    >>> find_file(file, None, (".tsv",))[2].endswith("words.tsv")
    True
    """
    name = check_file(path)
    if name.lower().endswith(".zip"):
        member = _find_member(name, member, ends)
    elif member is not None:
        raise RegardError(f"member={member!r} names a file in a .zip, and {name} is none: leave member out.")
    inner = (member or name).lower().removesuffix(".gz")
    if not inner.endswith(ends):
        raise RegardError(f"{name} must end in {_say(ends)} (then .gz), or .zip: save it as one of these{hint}.")
    return name, member, inner


def _say(ends: Sequence[str]) -> str:
    return f"{', '.join(ends[:-1])} or {ends[-1]}" if len(ends) > 1 else ends[0]


def check_file(path: PathLike) -> str:
    """Check that a file is there and no folder; its name."""
    name = os.fspath(path)
    if not os.path.exists(name):
        raise RegardError(f"{name} does not exist: check the name.")
    if os.path.isdir(name):
        raise RegardError(f"{name} is a folder: name a file in it.")
    return name


def read_objects(name: str, member: str | None, keys: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects of a JSONL file, each with these keys, and their line numbers; {} for a blank line."""
    for number, line in read_lines(name, member):
        if not line.strip():
            yield number, {}
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
        yield number, row


def take_text(row: dict[str, Any], key: str, name: str, number: int) -> str:
    """The text under a key of an object that `read_objects` read; "" of a blank line."""
    text = row.get(key, "")
    if not isinstance(text, str):
        raise RegardError(f"{name}, line {number}: {key!r} must be text, is a {type(text).__name__}: mend the line.")
    if SURROGATE.search(text):
        raise RegardError(f"{name}, line {number}: {key!r} has half a surrogate pair: mend the line.")
    return text


def read_lines(name: str, member: str | None = None, kind: str = "pair") -> Iterator[tuple[int, str]]:
    """Read lines with their numbers from 1, without line ends and byte-order mark; `kind` is what a line holds."""
    number = 0
    try:
        with _open(name, member) as stream:
            while raw := stream.readline(MOST_BYTES + 1):
                number += 1
                yield number, decode_line(raw, name, number, kind)
    except DAMAGE as error:
        raise RegardError(
            f"{name} is damaged after line {number} ({error}): fetch it again, or pack it again."
        ) from None
    except OSError as error:
        raise RegardError(f"{name} cannot be read ({error.strerror or error}): check its permissions.") from None


def decode_line(raw: bytes, name: str, number: int, kind: str = "pair") -> str:
    """Decode a line of a file from UTF-8, without its end; `number` is counted from 1."""
    if len(raw) > MOST_BYTES:
        raise RegardError(f"{name}, line {number} is longer than {MOST_BYTES:,} bytes: one {kind} a line.")
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


def _find_member(name: str, member: str | None, ends: tuple[str, ...]) -> str:
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
    fit = [x for x in files if x.lower().removesuffix(".gz").endswith(ends)]
    fit = [x for x in fit if not os.path.basename(x).startswith(("_", "."))]
    if len(fit) != 1:
        common = [x for x in ends if x not in (".tab", ".ndjson")]
        raise RegardError(
            f"{name} must hold one {_say(common)} file, holds {len(fit)} ({', '.join(fit or files)[:100]}): name"
            " the member to read."
        )
    return fit[0]
