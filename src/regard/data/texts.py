"""A reader of plain text without labels, also out of TSV, CSV, JSONL and CoNLL-U."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial

from regard.core import RegardError
from regard.data.cells import CSV, TEXTS, Column, check_columns, read_columns
from regard.data.labelled import PLAIN, list_folder
from regard.data.lines import JSONL, PathLike, find_file, read_lines, read_objects, take_text
from regard.data.tagged import CONLLU, read_tagged

TEXT, TSV = (".txt", ".text"), (".tsv", ".tab")


class Texts:
    """The texts of a file, read lazily, each time they are iterated; "" stands between two documents.

    >>> list(Texts(lambda: iter(["", " a", "b ", "", "", "c", ""]), name="seven lines"))
    ['a', 'b', '', 'c']

    Texts are in unicode NFC and stripped.
    """

    def __init__(self, rows: Callable[[], Iterator[str]], *, name: str) -> None:
        self.name = name
        self._rows = rows

    def __iter__(self) -> Iterator[str]:
        found = ended = False
        for row in self._rows():
            text = unicodedata.normalize("NFC", row).strip()
            if text:
                if found and ended:
                    yield ""
                found, ended = True, False
                yield text
            else:
                ended = True
        if not found:
            raise RegardError(f"{self.name} has no text: name a file that has some.")

    def __repr__(self) -> str:
        return f"Texts({self.name})"


def read_texts(path: PathLike, *, column: Column | None = None, key: str = "text", member: str | None = None) -> Texts:
    """Read the texts of a file, by its name: plain, one per line (.txt, .text), or of TSV, CSV, JSONL or CoNLL-U.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "a.txt")
    >>> _ = file.write_text("Once there was a king.\\nHe had a cat.\\n\\nAnother tale.\\n")
    >>> list(read_texts(file))
    ['Once there was a king.', 'He had a cat.', '', 'Another tale.']

    A blank line ends a document. Of TSV and CSV it is the `column`, counted from 0 or named as in the first row; if
    left out, the one the first row calls text, sentence, review, content or comment, else column 0 from the first row
    on; of JSONL what `key` names; of CoNLL-U the words with spaces between them. A folder is its .txt and .txt.gz files
    and those of the folders in it, each a document.
    """
    if column is not None:
        check_columns((column,), 1)
    if os.path.isdir(path):
        if member is not None or column is not None:
            raise RegardError(f"{os.fspath(path)} is a folder, which has no columns and no member: leave them out.")
        return Texts(partial(_read_folder, os.fspath(path)), name=os.fspath(path))
    name, member, inner = find_file(path, member, TEXT + TSV + CSV + JSONL + CONLLU)
    if inner.endswith(TEXT):
        rows = partial(_read_plain, name, member)
    elif inner.endswith(JSONL):
        rows = partial(_read_jsonl, name, member, key)
    elif inner.endswith(CONLLU):
        rows = partial(_read_words, name, member)
    else:
        rows = partial(_read_column, name, member, inner, column)
    return Texts(rows, name=name)


def _read_plain(name: str, member: str | None) -> Iterator[str]:
    return (line for _, line in read_lines(name, member, "text"))


def _read_jsonl(name: str, member: str | None, key: str) -> Iterator[str]:
    return (take_text(row, key, name, number) for number, row in read_objects(name, member, (key,)))


def _read_words(name: str, member: str | None) -> Iterator[str]:
    # every word has a number: no column can be missing that is not asked for
    return (" ".join(words) for words, _ in read_tagged(name, column="id", member=member))


def _read_column(name: str, member: str | None, inner: str, column: Column | None) -> Iterator[str]:
    names = (TEXTS,) if column is None else ()
    chosen: tuple[Column] = (0,) if column is None else (column,)
    return (text for _, (text,) in read_columns(name, member, inner, chosen, names=names))


def _read_folder(name: str) -> Iterator[str]:
    for entry in list_folder(name):
        path = os.path.join(name, entry)
        if os.path.isdir(path):
            yield from _read_folder(path)
        elif entry.lower().endswith(PLAIN):
            yield from _read_plain(path, None)
            yield ""
