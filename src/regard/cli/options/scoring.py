"""Options of `regard evaluate` that only some tasks have: how test data is read, and how answers are decoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options.examples import Header, Member, Swap, read_column, read_columns, read_label_columns, read_two
from regard.cli.options.spread import Some, drop_none

Columns = Annotated[
    str | None,
    Some(
        "M,N",
        "Columns in TSV and CSV, source and target or text and label: numbers from 1, or names for labels. "
        " [default: 1,2; for labels as in training]",
    ),
]
Keys = Annotated[
    str | None, Some("A,B", "The same, keys in JSONL.  [default: source,target; for labels as in training]")
]
Column = Annotated[
    str | None,
    Some("NAME", "Column of the tags in CoNLL-U, or of plain text in TSV and CSV.  [default: as in training]"),
]


@dataclass(frozen=True)
class Scoring:
    """The options of evaluating a task; a subclass has a field for each.

    `changes` is what of its reader differs from how the run read its own data, `options` is for its scorer.
    """

    @property
    def changes(self) -> dict[str, Any]:
        return {}

    @property
    def options(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class AnswerScoring(Scoring):
    """The options of evaluating a task whose runs answer each example by a line."""

    output: Annotated[
        Path | None,
        Some("FILE", "Write the answers to a file, one per line; one that exists needs --force.  [default: none]"),
    ] = None


@dataclass(frozen=True)
class PairScoring(AnswerScoring):
    columns: Columns = None
    keys: Keys = None
    swap: Swap = False
    member: Member = None

    @property
    def changes(self) -> dict[str, Any]:
        numbers, names = read_columns(self.columns or "1,2"), read_two("--keys", self.keys or "source,target")
        return {"columns": numbers, "keys": names, "swap": self.swap, "member": self.member}


@dataclass(frozen=True)
class TranslationScoring(PairScoring):
    beam: Annotated[int | None, Some("N", "For translation: beam size; 1 is greedy decoding.  [default: 5]", min=1)] = (
        None
    )
    alpha: Annotated[
        float | None,
        Some("X", "For translation: length penalty of beam search, 0 for none.  [default: 0.6]", min=0),
    ] = None
    lowercase: Annotated[bool, typer.Option("--lowercase", help="For translation: ignore case.")] = False
    tokenize: Annotated[
        str | None,
        Some(
            "NAME",
            "For translation: sacreBLEU's tokenizer, 13a, intl, zh, char or none; auto is none for a run with a"
            " --joiner, zh for Chinese, char for other scripts without spaces, else 13a.  [default: auto]",
        ),
    ] = None

    @property
    def options(self) -> dict[str, Any]:
        found = {"beam": self.beam, "alpha": self.alpha, "lowercase": self.lowercase, "tokenize": self.tokenize}
        return drop_none(found)


@dataclass(frozen=True)
class LabelScoring(AnswerScoring):
    columns: Columns = None
    keys: Keys = None
    header: Header = False

    @property
    def changes(self) -> dict[str, Any]:
        named = None if self.keys is None else read_two("--keys", self.keys)
        chosen = read_label_columns(self.columns)
        return drop_none({"columns": chosen, "keys": named, "header": self.header or None})


@dataclass(frozen=True)
class TagScoring(AnswerScoring):
    column: Column = None

    @property
    def changes(self) -> dict[str, Any]:
        return drop_none({"column": self.column})


@dataclass(frozen=True)
class TextScoring(Scoring):
    column: Column = None

    @property
    def changes(self) -> dict[str, Any]:
        return {} if self.column is None else {"column": read_column(self.column)}
