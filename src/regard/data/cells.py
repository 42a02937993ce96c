"""Columns of TSV and CSV files, by position or by the names in a header."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from regard.core import RegardError
from regard.data.lines import MOST_BYTES, read_lines

CSV = (".csv",)
# what a first row calls its text and its label, likeliest first
TEXTS = ("text", "sentence", "review", "content", "comment")
LABELS = ("label", "labels", "class", "sentiment", "category", "target")

Column = int | str


def read_columns(
    name: str,
    member: str | None,
    inner: str,
    columns: Sequence[Column],
    *,
    names: Sequence[Sequence[str]] = (),
    header: bool = False,
    is_fixed: bool = False,
) -> Iterator[tuple[int, list[str]]]:
    """The chosen columns of each row, and the number of its line; a blank row has blank cells.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = file.write_text('label,review\\n1,"Good, ""really""."\\n')
    >>> list(read_columns(str(file), None, "a.csv", ("review", "label")))
    [(2, ['Good, "really".', '1'])]

    Where a column is named, or `header` is set, the first row is names. `names` are, for each column, what it may be
    called: where the first row has one of each, in any case, these are taken and `columns` are not. With `is_fixed` the
    columns stay, and the first row is names where each of the chosen cells is one of its own.
    """
    places: list[int] | None = None
    for number, cells in _read_cells(name, member, inner):
        if not any(map(str.strip, cells)):
            yield number, [""] * len(columns)
            continue
        if places is None:
            has_names, places = _find_places(name, number, cells, columns, names, is_fixed)
            if has_names or header:
                continue
        if len(cells) <= max(places):
            between = "commas" if inner.endswith(CSV) else "tabs"
            raise RegardError(
                f"{name}, line {number} must have at least {max(places) + 1} columns between {between}, has"
                f" {len(cells)}: mend the line, or name other columns."
            )
        yield number, [cells[place] for place in places]


def _find_places(
    name: str, number: int, cells: list[str], columns: Sequence[Column], names: Sequence[Sequence[str]], is_fixed: bool
) -> tuple[bool, list[int]]:
    """Whether the first row is a header, and the positions of the columns."""
    heads = [cell.strip() for cell in cells]
    small = [head.lower() for head in heads]
    known = [next((x for x in some if x in small), None) for some in names]
    if known and not is_fixed and None not in known:
        return True, [small.index(str(x)) for x in known]
    for column in columns:
        if isinstance(column, str) and column not in heads:
            has = ", ".join(map(repr, heads))[:60]
            raise RegardError(
                f"{name}, line {number} names no column {column[:40]!r} (it has {has}): name one of these, or its"
                " number."
            )
    places = [heads.index(column) if isinstance(column, str) else column for column in columns]
    has_names = any(isinstance(column, str) for column in columns)
    if is_fixed and len(names) == len(places) and max(places) < len(small):
        has_names = has_names or all(small[place] in some for place, some in zip(places, names, strict=True))
    return has_names, places


def check_columns(columns: Sequence[Column], count: int) -> None:
    """Check that columns are positions or names, as many as are needed."""
    if len(columns) != count or any(
        isinstance(x, bool) or not isinstance(x, int | str) or (isinstance(x, int) and x < 0) for x in columns
    ):
        raise RegardError(
            f"columns must be {count} names of the first row, or positions counted from 0, got {str(columns)[:60]}."
        )


def _read_cells(name: str, member: str | None, inner: str) -> Iterator[tuple[int, list[str]]]:
    lines = read_lines(name, member)
    if not inner.endswith(CSV):
        yield from ((number, line.split("\t")) for number, line in lines)
        return
    # strict: a quote that is never closed would take the rest of the file for one cell
    rows = csv.reader((line + "\n" for _, line in lines), strict=True)
    while True:
        number = rows.line_num + 1
        # the limit is the process's, and other readers have theirs
        limit = csv.field_size_limit(MOST_BYTES)
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise RegardError(
                f"{name}, line {number} is not CSV ({error}): mend it; a quote inside quotes is written twice."
            ) from None
        finally:
            csv.field_size_limit(limit)
        yield number, cells
