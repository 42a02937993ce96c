"""The options that name sentence pairs and labelled texts, shared by commands."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import Some

Data = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="A file of pairs (.tsv, .txt, .jsonl, then .gz; .zip), or phrasebook; twice for two files line by line.",
    ),
]
Columns = Annotated[str, typer.Option(metavar="M,N", help="Of a TSV: source and target, counted from 1.")]
Keys = Annotated[str, typer.Option(metavar="A,B", help="Of JSONL: source and target.")]
Swap = Annotated[bool, typer.Option("--swap", help="Take the target for the source.")]
Member = Annotated[str | None, typer.Option(metavar="NAME", help="Of a .zip: the file in it.")]
LabelColumns = Annotated[
    str | None,
    Some(
        "M,N", "Of TSV and CSV: text and label, counted from 1 or by their names.  [default: by the first row, or 1,2]"
    ),
]
LabelKeys = Annotated[str, typer.Option(metavar="A,B", help="Of JSONL: text and label.")]


def read_columns(given: str) -> tuple[int, int]:
    """Two columns, counted from 0."""
    first, second = read_two("--columns", given)
    if not (first.isdecimal() and second.isdecimal() and int(first) and int(second)):
        raise typer.BadParameter(f"--columns must be two numbers counted from 1, as 1,2, got {given!r}")
    return int(first) - 1, int(second) - 1


def read_label_columns(given: str | None) -> tuple[int | str, int | str] | None:
    """Two columns, by name or counted from 0."""
    if given is None:
        return None
    first, second = read_two("--columns", given)
    return read_column(first, "--columns"), read_column(second, "--columns")


def read_column(given: str, name: str = "--column") -> int | str:
    """A column, by name or counted from 0."""
    if given.isdecimal() and not int(given):
        raise typer.BadParameter(f"{name} must be named as in the first row, or counted from 1, got {given!r}")
    return int(given) - 1 if given.isdecimal() else given


def read_two(name: str, given: str) -> tuple[str, str]:
    """Two words with a comma between."""
    parts = [part.strip() for part in given.split(",")]
    if len(parts) != 2 or not all(parts):
        raise typer.BadParameter(f"{name} must be two with a comma between, got {given!r}")
    return parts[0], parts[1]
