"""The tables of a comparison, the textbooks' own before those of its parts; and how they are printed."""

from __future__ import annotations

from typing import Any

from regard.compare.kinds import KINDS
from regard.compare.meters.spending import WHY
from regard.compare.part import Column, Listing, find_part
from regard.compare.registry import list_parts
from regard.compare.report.cells import NOTHING, name_kind, show_list
from regard.compare.rows import Numbers
from regard.core import RegardError
from regard.extras import install

# what a pipe is printed, whatever its terminal's width
WIDTH = 100


def list_tables(parts: Numbers, settings: Numbers) -> dict[str, list[Listing]]:
    """All tables that have rows by their part; the textbooks' is the first."""
    made = {"textbook": [compare_textbook(parts)]}
    made |= {name: [*find_part(name).tables(numbers, settings)] for name, numbers in parts.items()}
    return {name: [table for table in tables if table.rows] for name, tables in made.items()}


def list_columns(parts: Numbers) -> list[Column]:
    """Those of the textbooks' table."""
    return [column for name, numbers in parts.items() for column in find_part(name).columns(numbers)]


def compare_textbook(parts: Numbers) -> Listing:
    """The table; without rows where no part has a column."""
    columns = list_columns(parts)
    kinds = dict.fromkeys(kind for column in columns for kind in column.cells)
    # the known ones in their order, others after them
    order = sorted(kinds, key=lambda kind: [*KINDS, kind].index(kind))
    rows = [(name_kind(kind), *(one.cells.get(kind, f"{NOTHING}\n{NOTHING}") for one in columns)) for kind in order]
    note = f"Above: the textbooks. Below: measured{''.join(column.clause for column in columns)}."
    note += "".join(column.note for column in columns)
    heads = ("layer", *(column.name for column in columns))
    return Listing("Per layer: n tokens of width d, kernel k, window w", heads, tuple(rows), note)


def read_textbook(parts: Numbers) -> str:
    """Which rows are whose, and which cells another machine would change; nothing where no part has a column."""
    found, columns = [find_part(name) for name in parts], list_columns(parts)
    if not columns:
        return ""
    said = ["Every cell has what the textbooks say above what was measured here on the running layer."]
    if claims := [column.claim for column in columns if column.claim is not None]:
        measured = show_list(filter(None, claims))
        told = f"Measured, {measured}." if measured else "Nothing measured here tells them apart."
        said.append(f"Several published notes swap the rows of convolution and recurrence. {told}")
    if counted := show_list(part.counts or part.name for part in found if part.nature == "counted"):
        said.append(f"{counted[0].upper()}{counted[1:]} are counted, and the same on every machine.")
    if any(part.nature == "timed" for part in found):
        said.append("Seconds, memory and where the lines cross depend on the machine and on torch's kernels.")
    if learned := show_list(part.name for part in found if part.nature == "learned"):
        said.append(f"What is learned ({learned}) depends on the seed, and in its last digits on the machine.")
    return " ".join(said)


def tell_missing(parts: Numbers) -> str:
    """How much of all that is timed and trained there was no time for; nothing where there was time for all.

    >>> tell_missing({"cost": {"rows": [{"kind": "conv"}], "skipped": [{"kind": "gru", "why": WHY}]}})
    '1 of 2 measurements was left out for lack of time; run without --quick for all.'
    """
    skipped = [row for numbers in parts.values() for row in numbers.get("skipped", [])]
    # a model is trained once, and asked at many distances
    lists = {name: "rows" if find_part(name).nature == "timed" else "training" for name in parts}
    done = sum(len(numbers.get(lists[name], [])) for name, numbers in parts.items())
    left = sum(row["why"] == WHY for row in skipped)
    told = f"{left} of {done + len(skipped)} measurements {'was' if left == 1 else 'were'} left out for lack of time"
    return f"{told}; run without --quick for all." if left else ""


def print_tables(parts: Numbers, settings: Numbers, console: Any = None) -> None:
    """Prints every table; in a pipe as plain text."""
    try:
        from rich.console import Console
        from rich.measure import Measurement
        from rich.text import Text
    except ImportError:
        raise RegardError(f"Tables need the package rich: {install('plot')}.") from None
    if console is None:
        console = Console(highlight=False, markup=False)
        if not console.is_terminal:
            # a pipe has no width: what is read later has room
            console.width = max(console.width, WIDTH)
    if missing := tell_missing(parts):
        console.print(f"{missing}\n", style="bold")
    any_width = console.options.update(width=10_000)
    for number, table in enumerate(table for tables in list_tables(parts, settings).values() for table in tables):
        if number:
            console.print()
        for is_whole in (True, False):
            grid = _lay_out(table, is_whole)
            least = Measurement.get(console, any_width, grid).minimum
            if least <= console.width:
                break
        # in a terminal too narrow for its words the lines are broken by the terminal, and no number is cut
        console.print(grid, width=max(console.width, least), crop=False, overflow="ignore", no_wrap=True)
        if table.note:
            console.print(Text(table.note, style="dim"))
    if unasked := [name for name in list_parts() if name not in parts]:
        console.print(f"\nNot measured: {show_list(unasked)}.")


def _lay_out(table: Listing, is_whole: bool) -> Any:
    """The table with the first cell of each row on one line, where that `is_whole`, or broken as the others are."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    has_two = any("\n" in cell for row in table.rows for cell in row)
    grid = Table(
        title=table.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
        padding=(0, 2, 0, 0), show_edge=False,
    )  # fmt: skip
    right = find_numbers(table)
    for number, column in enumerate(table.columns):
        # a word is never cut, however narrow the terminal: cells are broken between words before that
        cells = [row[number] for row in (table.columns, *table.rows)]
        is_kept = is_whole and number == 0
        least = max(len(part) for cell in cells for part in (cell.split("\n") if is_kept else cell.split()))
        grid.add_column(Text(column), justify="right" if number in right else "left", min_width=least, no_wrap=is_kept)
    for row in table.rows:
        grid.add_row(*map(Text, row), end_section=has_two)
    return grid


def find_numbers(table: Listing) -> set[int]:
    """The columns that are numbers all down, but for gaps."""
    digits = set("0123456789.,% –")
    columns = enumerate(zip(*table.rows, strict=True))
    return {at for at, cells in columns if all(cell == "all" or set(cell) <= digits for cell in cells)}
