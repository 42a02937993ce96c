"""Readers of tagged sentences: CoNLL-U, or a word and its tag per line; plain, gz or a member of a zip."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial

from regard.core import RegardError
from regard.data.lines import PathLike, find_file, read_lines

Sentence = tuple[tuple[str, ...], tuple[str, ...]]

CONLLU, COLUMNS = (".conllu", ".conll"), (".tsv", ".txt", ".tab")
NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
# 1-2 is two words written as one, 8.1 a word that is not written: neither is a word of the sentence
WORD, OTHER = re.compile(r"[0-9]+"), re.compile(r"[0-9]+[-.][0-9]+")
# no sentence is so long: the blank lines are missing
MOST_WORDS = 10_000


class Tagged:
    """The tagged sentences of a file, as words and tags, read lazily, each time they are iterated.

    >>> list(Tagged(lambda: iter([(("Run", "!"), ("VERB", "PUNCT"))]), name="one line"))
    [(('Run', '!'), ('VERB', 'PUNCT'))]
    """

    def __init__(self, rows: Callable[[], Iterator[Sentence]], *, name: str) -> None:
        self.name = name
        self._rows = rows

    def __iter__(self) -> Iterator[Sentence]:
        found = False
        for row in self._rows():
            found = True
            yield row
        if not found:
            raise RegardError(f"{self.name} has no tagged sentences: name a file that has some.")

    def __repr__(self) -> str:
        return f"Tagged({self.name})"


def read_tagged(path: PathLike, *, column: str | int = "upos", member: str | None = None) -> Tagged:
    """Read tagged sentences from a file, by its name: CoNLL-U (.conllu, .conll) or two columns (.tsv, .txt, .tab).

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "a.txt")
    >>> _ = file.write_text("I PRON\\nsee VERB\\n\\nGo VERB\\n")
    >>> list(read_tagged(file))
    [(('I', 'see'), ('PRON', 'VERB')), (('Go',), ('VERB',))]

    `column` of CoNLL-U is the tag: id, form, lemma, upos, xpos, feats, head, deprel, deps, misc, or its number from 0.
    Of two columns, between a tab or else spaces, the second is. A blank line ends a sentence, and -DOCSTART- is no
    word. Words are in unicode NFC. Behind the name may stand .gz; of a .zip the one member is read that has such a
    name, or `member`.
    """
    name, member, inner = find_file(path, member, CONLLU + COLUMNS)
    if inner.endswith(CONLLU):
        return Tagged(partial(_read_sentences, name, member, _find_column(column)), name=name)
    if column != "upos":
        raise RegardError(f"{name} has two columns, a word and its tag: leave column={str(column)[:40]!r} out.")
    return Tagged(partial(_read_sentences, name, member, None), name=name)


def _find_column(column: str | int) -> int:
    if column in NAMES:
        return NAMES.index(str(column))
    if isinstance(column, bool) or not isinstance(column, int) or not 0 <= column < len(NAMES):
        raise RegardError(f"column must be one of {', '.join(NAMES)} or 0 to 9, got {str(column)[:40]!r}.")
    return column


def _read_sentences(name: str, member: str | None, column: int | None) -> Iterator[Sentence]:
    words: list[str] = []
    tags: list[str] = []
    for number, line in read_lines(name, member, "word"):
        if not line.strip():
            if words:
                yield tuple(words), tuple(tags)
                words, tags = [], []
            continue
        found = _cut_two(name, number, line) if column is None else _cut_ten(name, number, line, column)
        if found is None:
            continue
        word, tag = (" ".join(unicodedata.normalize("NFC", x).split()) for x in found)
        if not word or tag in ("", "_"):
            what = "tag" if word else "word"
            raise RegardError(f"{name}, line {number} has no {what}: mend the line, or name another column.")
        if len(words) == MOST_WORDS:
            raise RegardError(
                f"{name}, line {number}: a sentence has more than {MOST_WORDS:,} words: put a blank line behind each."
            )
        words.append(word)
        tags.append(tag)
    if words:
        yield tuple(words), tuple(tags)


def _cut_two(name: str, number: int, line: str) -> list[str] | None:
    # only a tab tells a word with spaces in it from more columns
    cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    if cells[0] == "-DOCSTART-":
        return None
    if len(cells) != 2:
        raise RegardError(
            f"{name}, line {number} must have 2 columns, a word and its tag, has {len(cells)}: mend the line, or end"
            " the file's name in .conllu."
        )
    return cells


def _cut_ten(name: str, number: int, line: str, column: int) -> tuple[str, str] | None:
    if line.startswith("#"):
        return None
    cells = line.split("\t")
    if len(cells) != len(NAMES):
        raise RegardError(
            f"{name}, line {number} must have 10 columns between tabs, has {len(cells)}: mend the line, or end the"
            " file's name in .txt where it is a word and its tag."
        )
    if OTHER.fullmatch(cells[0]):
        return None
    if not WORD.fullmatch(cells[0]):
        raise RegardError(f"{name}, line {number} must begin with a word's number, not {cells[0][:40]!r}: mend it.")
    return cells[1], cells[column]
