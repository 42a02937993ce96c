"""Readers of labelled texts: TSV, CSV, JSONL, or a folder with a folder of texts for each label."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from regard.core import RegardError
from regard.data.cells import CSV, LABELS, TEXTS, Column, check_columns, read_columns
from regard.data.lines import JSONL, MOST_BYTES, TSV, PathLike, find_file, read_lines, read_objects, take_text
from regard.data.pairs import Pair, Pairs

PLAIN = (".txt", ".txt.gz")


def read_labelled(
    path: PathLike,
    *,
    columns: Sequence[Column] | None = None,
    keys: tuple[str, str] = ("text", "label"),
    header: bool = False,
    member: str | None = None,
) -> Pairs:
    """Read labelled texts: TSV (.tsv, .txt, .tab), CSV, JSONL, or a folder with a folder of .txt files per label.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = file.write_text('label,review\\n1,"Good, and cheap."\\n0,Never again.\\n')
    >>> list(read_labelled(file))
    [('Good, and cheap.', '1'), ('Never again.', '0')]

    `columns` are those of the text and of the label, counted from 0 or named as in the first row. If left out, the
    first row is looked at: where it names a text (text, sentence, review, content, comment) and a label (label, labels,
    class, sentiment, category, target), these are taken, else columns 0 and 1, from the first row on. Where columns are
    counted, the first row is skipped if these are such names, or by `header`. `keys` are those of a JSONL object, whose
    label may be a whole number, true or false. In a folder the label is the name of the folder in it, and each .txt or
    .txt.gz file there is a text. White space in labels, and in texts of a folder, becomes one space. Behind the name of
    a file may stand .gz; of a .zip one `member` is read.
    """
    if columns is not None:
        check_columns(columns, 2)
    if os.path.isdir(path):
        if member is not None or columns is not None or header:
            raise RegardError(f"{os.fspath(path)} is a folder, which has no columns, header or member: leave them out.")
        return Pairs(partial(_read_folders, os.fspath(path)), name=os.fspath(path), kind="labelled texts")
    name, member, inner = find_file(path, member, TSV + CSV + JSONL)
    if inner.endswith(JSONL):
        rows = partial(_read_jsonl, name, member, keys)
    else:
        rows = partial(_read_rows, name, member, inner, columns, header)
    return Pairs(rows, name=name, kind="labelled texts")


def _read_rows(
    name: str, member: str | None, inner: str, columns: Sequence[Column] | None, header: bool
) -> Iterator[Pair]:
    options: dict[str, Any] = {"names": (TEXTS, LABELS), "header": header, "is_fixed": columns is not None}
    for _, (text, label) in read_columns(name, member, inner, columns or (0, 1), **options):
        yield text, _join(label)


def _read_jsonl(name: str, member: str | None, keys: tuple[str, str]) -> Iterator[Pair]:
    for number, row in read_objects(name, member, keys):
        yield take_text(row, keys[0], name, number), _take_label(row, keys[1], name, number)


def _take_label(row: dict[str, Any], key: str, name: str, number: int) -> str:
    label = row.get(key, "")
    # written as in the file
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, int):
        return str(label)
    if not isinstance(label, str):
        raise RegardError(
            f"{name}, line {number}: {key!r} must be text, a whole number, true or false, is a"
            f" {type(label).__name__}: mend the line."
        )
    return _join(take_text(row, key, name, number))


def _join(label: str) -> str:
    """A label in one line, with single spaces."""
    return " ".join(label.split())


def _read_folders(name: str) -> Iterator[Pair]:
    labels = [x for x in list_folder(name) if os.path.isdir(os.path.join(name, x))]
    if not labels:
        raise RegardError(f"{name} has no folders: put a folder of .txt files in it for each label.")
    for label in labels:
        folder = os.path.join(name, label)
        files = [x for x in list_folder(folder) if x.lower().endswith(PLAIN)]
        if not files:
            raise RegardError(f"{folder} has no .txt files: put the texts of this label in it, or remove it.")
        for file in files:
            yield _read_whole(os.path.join(folder, file)), _join(label)


def list_folder(name: str) -> list[str]:
    """The entries of a folder, sorted, without hidden ones."""
    try:
        return sorted(x for x in os.listdir(name) if not x.startswith((".", "_")))
    except OSError as error:
        raise RegardError(f"{name} cannot be read ({error.strerror or error}): check its permissions.") from None


def _read_whole(name: str) -> str:
    size, parts = 0, []
    for _, line in read_lines(name, None, "text"):
        size += len(line)
        if size > MOST_BYTES:
            raise RegardError(f"{name} is longer than {MOST_BYTES:,} characters: one text a file.")
        parts += line.split()
    return " ".join(parts)
