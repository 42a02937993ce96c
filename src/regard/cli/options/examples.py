"""Options of datasets: files, sentence pairs, labelled texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from regard.cli.options.spread import Some
from regard.cli.options.training import HeldOut, Limit, Valid

Data = Annotated[
    list[str] | None,
    Some(
        "FILE",
        "Sentence pairs: .tsv, .txt or .jsonl, also as .gz or in a .zip; given twice, two files aligned line by line,"
        " source and target.  [default: the built-in phrasebook]",
    ),
]
Columns = Annotated[str, typer.Option(metavar="M,N", help="Columns of source and target in TSV, from 1.")]
Keys = Annotated[str, typer.Option(metavar="A,B", help="Keys of source and target in JSONL.")]
Swap = Annotated[bool, typer.Option("--swap", help="Swap source and target.")]
Member = Annotated[str | None, Some("NAME", "File to read inside a .zip.  [default: the only one that fits]")]
LabelColumns = Annotated[
    str | None,
    Some(
        "M,N",
        "Columns of text and label in TSV and CSV: numbers from 1, or names in the first row.  [default: as the first"
        " row names them, else 1,2]",
    ),
]
Header = Annotated[
    bool, typer.Option("--header", help="Skip the first row of TSV and CSV, where --columns are numbers.")
]
LabelKeys = Annotated[str, typer.Option(metavar="A,B", help="Keys of text and label in JSONL.")]


@dataclass(frozen=True)
class Texts:
    """Options of a dataset."""

    data: Annotated[
        list[str] | None,
        Some("FILE", "Training data; repeat for more files.  [default: {builtin}]"),
    ] = None
    valid: Valid = None
    held_out: HeldOut = None
    limit: Limit = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the dataset that were given."""
        found = {"held_out": self.held_out, "limit": self.limit, "valid": tuple(self.valid or ())}
        return found | ({"data": tuple(self.data)} if self.data else {})


@dataclass(frozen=True)
class PairTexts:
    """Options of a dataset of sentence pairs."""

    data: Data = None
    valid: Valid = None
    columns: Columns = "1,2"
    keys: Keys = "source,target"
    swap: Swap = False
    member: Member = None
    held_out: HeldOut = None
    limit: Limit = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the dataset that were given."""
        found = {name: getattr(self, name) for name in ("swap", "member", "held_out", "limit")}
        found |= {"columns": read_columns(self.columns), "keys": read_two("--keys", self.keys)}
        return found | {"valid": tuple(self.valid or ())} | ({"data": tuple(self.data)} if self.data else {})


def read_columns(given: str) -> tuple[int, int]:
    """Parse two columns, given from 1 and returned from 0."""
    first, second = read_two("--columns", given)
    if not (first.isdecimal() and second.isdecimal() and int(first) and int(second)):
        raise typer.BadParameter(f"--columns must be two numbers counted from 1, as 1,2, got {given!r}")
    return int(first) - 1, int(second) - 1


def read_label_columns(given: str | None) -> tuple[int | str, int | str] | None:
    """Parse two columns, given by name or from 1 and returned from 0."""
    if given is None:
        return None
    first, second = read_two("--columns", given)
    return read_column(first, "--columns"), read_column(second, "--columns")


def read_column(given: str, name: str = "--column") -> int | str:
    """Parse a column, given by name or from 1 and returned from 0."""
    if given.isdecimal() and not int(given):
        raise typer.BadParameter(f"{name} must be named as in the first row, or counted from 1, got {given!r}")
    return int(given) - 1 if given.isdecimal() else given


def read_two(name: str, given: str) -> tuple[str, str]:
    """Parse two words with a comma between."""
    parts = [part.strip() for part in given.split(",")]
    if len(parts) != 2 or not all(parts):
        raise typer.BadParameter(f"{name} must be two with a comma between, got {given!r}")
    return parts[0], parts[1]
