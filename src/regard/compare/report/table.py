"""The tables of a comparison: the textbooks' own with what was measured, and smaller ones; as text, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.compare.kinds import KINDS
from regard.compare.report.cells import (
    NOTHING,
    VAGUE,
    average,
    compare_at,
    is_sparse,
    list_kinds,
    name_edge,
    name_kind,
    show_growth,
    show_list,
    show_number,
    show_powers,
    show_share,
    show_steps,
    take,
    tell_missing,
    tell_noise,
    tell_skipped,
)
from regard.compare.settings import PARTS
from regard.core import RegardError
from regard.extras import install

if TYPE_CHECKING:
    from regard.compare.comparison import Comparison

# what the terminal and the page print, whatever the terminal's width
WIDTH = 100
OF = {
    "textbook": "textbooks", "operations": "operations", "seconds": "seconds",
    "bytes": "memory",
}  # fmt: skip


@dataclass(frozen=True)
class Listing:
    """A table of texts: a cell of two lines is what the textbooks say above what was measured."""

    part: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def list_tables(comparison: Comparison) -> list[Listing]:
    """All tables of the parts that were measured; the textbooks' first."""
    parts = comparison.parts
    made = [compare_textbook(comparison)]
    if "cost" in parts:
        made.append(_list_crossings(parts["cost"], comparison.settings.get("dims") or {}))
    for name, title in (("recall", "Recall by distance"), ("order", "Order, a b c or c b a, by distance")):
        if name in parts:
            made += [_list_distances(parts[name], name, title), _list_edges(parts[name], name)]
    if "digits" in parts:
        made.append(_list_digits(parts["digits"]))
    return [table for table in made if table.rows]


def compare_textbook(comparison: Comparison) -> Listing:
    parts = comparison.parts
    columns: dict[str, dict[str, str]] = {}
    if "operations" in parts:
        columns["operations"] = _fill_operations(parts["operations"])
    if "steps" in parts:
        columns["steps"] = {
            fit["kind"]: f"{_show_order(fit['textbook'])}\n{show_steps(fit)}" for fit in parts["steps"]["fits"]
        }
    if "paths" in parts:
        columns["longest path"] = _fill_paths(parts["paths"])
    note = "Above: the textbooks. Below: measured"
    note += ", and how many paths are exactly as long as that." if "paths" in parts else "."
    if "cost" in parts:
        for of, name in (("seconds", "seconds"), ("bytes", "memory")):
            columns[name] = _fill_cost(parts["cost"], of)
        batches = [fit["batch"] for fit in parts["cost"]["fits"]]
        if batches:
            note += f" Seconds and memory: forward above, training below, batch {max(batches)}."
        if any("?" in cell for name in ("seconds", "memory") for cell in columns[name].values()):
            note += f" With ?: uncertain by more than {VAGUE}."
    kinds = dict.fromkeys(kind for column in columns.values() for kind in column)
    order = [*(name for name in KINDS if name in kinds), *(name for name in kinds if name not in KINDS)]
    rows = tuple(
        (name_kind(kind), *(column.get(kind, f"{NOTHING}\n{NOTHING}") for column in columns.values())) for kind in order
    )
    return Listing("textbook", "Per layer: n tokens of width d, kernel k, window w", ("layer", *columns), rows, note)


def _show_order(order: str) -> str:
    return f"O({order})"


def _fill_operations(part: dict[str, Any]) -> dict[str, str]:
    """The products in which tokens meet, which are what the textbooks count."""
    cells = {}
    for kind in list_kinds(part["fits"]):
        fits = take(part["fits"], kind=kind)
        fit = next((fit for fit in fits if fit["of"] == "mixing"), fits[0])
        book = KINDS[kind].textbook[0] if kind in KINDS else show_powers(fit["textbook"], digits=0)
        whole = "" if fit["of"] == "mixing" else " (whole layer)"
        cells[kind] = f"{_show_order(book)}\n{show_powers(fit['exponents'])}{whole}"
    return cells


def _fill_paths(part: dict[str, Any]) -> dict[str, str]:
    cells = {}
    for kind in list_kinds(part["rows"]):
        rows = take(part["rows"], kind=kind)
        right = sum(row["length"] == row["formula"] for row in rows)
        book = _show_order(KINDS[kind].textbook[2]) if kind in KINDS else NOTHING
        formula = KINDS[kind].path_text if kind in KINDS else "formula"
        cells[kind] = f"{book}\n{formula}: {right} of {len(rows)}"
    return cells


def _fill_cost(part: dict[str, Any], of: str) -> dict[str, str]:
    fits = take(part["fits"], of=of)
    batch = max((fit["batch"] for fit in fits), default=None)
    cells = {}
    for kind in list_kinds(fits):
        found = {fit["pass"]: show_growth(fit) for fit in take(fits, kind=kind, batch=batch)}
        cells[kind] = "\n".join(found.get(doing, NOTHING) for doing in ("forward", "training"))
    return cells


def _list_crossings(part: dict[str, Any], dims: Mapping[str, int]) -> Listing:
    """By what is counted, down; by the layer it is set against, across."""
    crossings = part["crossings"]
    others = list(dict.fromkeys((cross["one"], cross["other"]) for cross in crossings))
    found = dict.fromkeys((cross["of"], cross["pass"], cross["batch"]) for cross in crossings)
    cases = sorted(found, key=lambda case: list(OF).index(case[0]) if case[0] in OF else len(OF))
    leads = {(lead["of"], lead["pass"], lead["batch"]): lead for lead in part.get("leads", [])}
    rows = []
    for case in cases:
        of, doing, batch = case
        here = {(c["one"], c["other"]): c for c in take(crossings, of=of, batch=batch, **{"pass": doing})}
        name = OF.get(of, str(of)) + (f", {doing}" if doing else "") + (f", batch {batch}" if batch else "")
        cells = [show_crossing(here[pair], part["rows"]) if pair in here else NOTHING for pair in others]
        # who leads at a few lengths is in the cells before
        has_lead = case in leads and not any(is_sparse(part["rows"], cross) for cross in here.values())
        rows.append((name, *cells, *([show_spans(leads[case]["spans"]) if has_lead else NOTHING] if leads else [])))
    ones = show_list([name_kind(one) for one in dict.fromkeys(one for one, _ in others)] or [NOTHING], "or")
    note = "Always and never: the two do not cross at the lengths looked at."
    if any(is_sparse(part["rows"], cross) for cross in crossings):
        note += " At and not at: the only lengths that both were measured at."
    if any(NOTHING in row for row in rows):
        note += f" {NOTHING}: not measured at common lengths, or at too few for all layers, or no exact formula, as for"
        note += " a window that is cut into tiles."
    widths = part.get("widths", {})
    if len(set(widths.values())) > 1:
        note += f" Widths: {show_list([f'{name_kind(kind)} {width}' for kind, width in widths.items()])}."
    sizes = [
        f"{letter} = {dims[name]}"
        for letter, name in zip("dkw", ("width", "kernel", "window"), strict=True)
        if name in dims
    ]
    given = f" ({', '.join(sizes)})" if sizes else ""
    if part.get("skipped"):
        count = len(part["skipped"])
        note += f" Left out, as the page lists: {count} of {count + len(part['rows'])} timings."
    note = f"{note} {tell_noise(part['rows'])}".strip()
    # a table of seven columns has no room for a word that says nothing here
    names = (name_kind(other).removesuffix(" attention") for _, other in others)
    columns = ("by", *names, *(["all"] if leads else []))
    return Listing("cost", f"Lengths at which {ones} costs less than{given}", columns, tuple(rows), note)


def show_crossing(cross: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the one is cheaper; if both were measured at a few of the lengths in `rows` alone, at which of those."""
    if is_sparse(rows, cross):
        gaps = compare_at(rows, cross).items()
        said = (f"{'at' if gap < 0 else 'not at' if gap else 'equal at'} {n:,}" for n, gap in gaps)
        return ", ".join(said) or NOTHING
    return "equal" if cross["is_equal"] else show_spans(cross["spans"])


def show_spans(spans: Sequence[Sequence[float | None]]) -> str:
    """Lengths from and to, as inequalities.

    >>> show_spans([[None, 64.2]]), show_spans([[32.0, 64.0]]), show_spans([[None, None]]), show_spans([])
    ('n < 64', '32 < n < 64', 'always', 'never')
    """
    said = []
    for low, high in spans:
        if low is None and high is None:
            return "always"
        below, above = (f"{low:,.0f} < " if low else ""), (f" < {high:,.0f}" if high else "")
        said.append(f"n > {low:,.0f}" if low and not high else f"{below}n{above}")
    return ", ".join(said) or "never"


def _list_distances(part: dict[str, Any], name: str, title: str) -> Listing:
    rows = part["rows"]
    distances = sorted({row["distance"] for row in rows})
    filled = []
    for kind in list_kinds(rows):
        for placed in (True, False):
            own = take(rows, kind=kind, has_position=placed)
            if own:
                shares = [average(take(own, distance=distance)) for distance in distances]
                # halves go up, as one learns it at school
                numbers = (NOTHING if share is None else str(int(100 * share + 0.5)) for share in shares)
                label = name_kind(kind) + ("" if placed else ", no position")
                filled.append((label, _show_reach(part["reach"], kind), *numbers))
    note = f"Percent right at each distance; by guessing {100 * part['chance']:.3g}. Reach: from the boolean Jacobian."
    note = f"{note} {tell_skipped(part)}".strip()
    return Listing(name, title, ("layer", "reach", *map(str, distances)), tuple(filled), note)


def _list_edges(part: dict[str, Any], name: str) -> Listing:
    """What does not reach all, at the last distance it reaches and at the next one."""
    rows = tuple(
        (name_edge(edge), show_number(edge["reach"]), show_share(edge["within"]), show_share(edge["beyond"]))
        for edge in part.get("edges", [])
    )
    note = f"By guessing {show_share(part['chance'])}."
    return Listing(name, f"{name.title()} at the edge", ("layer", "reach", "at it", "one beyond"), rows, note)


def _show_reach(reach: dict[str, int | None], kind: str) -> str:
    found = reach.get(kind)
    return "all" if found is None else show_number(found)


def _list_digits(part: dict[str, Any]) -> Listing:
    sizes = sorted({row["images"] for row in part["rows"]})
    rows = []
    for kind in list_kinds(part["rows"]):
        own = take(part["rows"], kind=kind)
        rows.append((name_kind(kind), *(show_share(average(take(own, images=size))) for size in sizes)))
    seeds = len({row["seed"] for row in part["rows"]})
    note = f"Right on images that were not learned from; mean over {seeds} seed{'s' if seeds != 1 else ''}."
    note = f"{note} {tell_skipped(part)}".strip()
    columns = ("layer", *(f"{size:,} images" for size in sizes))
    return Listing("digits", "Digits by how many images there are to learn from", columns, tuple(rows), note)


def print_tables(comparison: Comparison, console: Any = None) -> None:
    """Prints every table; in a pipe as plain text."""
    try:
        from rich.console import Console
        from rich.measure import Measurement
        from rich.text import Text
    except ImportError:
        raise RegardError(f"Tables need the package rich: {install('plot')}.") from None
    if console is None:
        # a pipe has no width: what is read later has room
        console = Console(highlight=False, markup=False)
        console.width = max(console.width, WIDTH) if not console.is_terminal else console.width
    if missing := tell_missing(comparison.parts):
        console.print(f"{missing}\n", style="bold")
    for number, table in enumerate(list_tables(comparison)):
        if number:
            console.print()
        grid, any_width = _lay_out(table, is_whole=True), console.options.update(width=10_000)
        if Measurement.get(console, any_width, grid).minimum > console.width:
            grid = _lay_out(table, is_whole=False)
        # in a terminal too narrow for its words the lines are broken by the terminal, and no number is cut
        least = Measurement.get(console, any_width, grid).minimum
        console.print(grid, width=max(console.width, least), crop=False, overflow="ignore", no_wrap=True)
        if table.note:
            console.print(Text(table.note, style="dim"))
    unasked = [name for name in PARTS if name not in comparison.parts]
    if unasked:
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
    right = find_numbers(table.rows, len(table.columns))
    for number, column in enumerate(table.columns):
        # a word is never cut, however narrow the terminal: cells are broken between words before that
        cells = [row[number] for row in (table.columns, *table.rows)]
        is_kept = is_whole and number == 0
        least = max(len(part) for cell in cells for part in (cell.split("\n") if is_kept else cell.split()))
        grid.add_column(Text(column), justify="right" if number in right else "left", min_width=least, no_wrap=is_kept)
    for row in table.rows:
        grid.add_row(*map(Text, row), end_section=has_two)
    return grid


def find_numbers(rows: Sequence[Sequence[str]], count: int) -> set[int]:
    """The columns that are numbers all down, but for gaps."""
    digits = set("0123456789.,% –")
    return {k for k in range(count) if all(row[k] in (NOTHING, "all") or set(row[k]) <= digits for row in rows)}
