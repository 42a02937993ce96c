"""The report: one file of HTML that holds all of it, runs nothing and fetches nothing."""

from __future__ import annotations

import base64
import html
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard.compare.comparison import FIELDS
from regard.compare.report.cells import (
    list_kinds,
    name_kind,
    show_number,
    show_powers,
    show_seconds,
    show_share,
    show_size,
    tell_missing,
)
from regard.compare.report.figures import PICTURES, Picture, repaint, write_svg
from regard.compare.report.readings import write_readings
from regard.compare.report.table import Listing, find_numbers, list_tables, show_crossing
from regard.compare.settings import PARTS, Settings
from regard.views.page.build import digest, write_json

if TYPE_CHECKING:
    from regard.compare.comparison import Comparison

STYLE = pathlib.Path(__file__).parent / "assets" / "report.css"
TITLE = "Convolution, recurrence and self-attention, measured"
TITLES = {
    "textbook": "The textbooks' table, measured", "operations": "Operations", "steps": "Sequential steps",
    "paths": "Longest path", "cost": "Time and memory", "recall": "Recall from far away", "order": "Order",
    "digits": "How many images it takes",
}  # fmt: skip
# the lists of a part that are tables; maps are pictures
LISTS = {
    "fits": "Fits",
    "crossings": "Crossings",
    "edges": "Edges",
    "rows": "Measurements",
    "skipped": "Left out",
    "training": "Training",
}
SHOWN: dict[str, Callable[[Any], str]] = {
    "kind": name_kind, "one": name_kind, "other": name_kind, "seconds": show_seconds,
    "low": show_seconds, "high": show_seconds, "bytes": show_size, "accuracy": show_share,
    "within": show_share, "beyond": show_share,
}  # fmt: skip

# settings as the command line has them
FLAGS = {"is_quick": "--quick", "has_equal_parameters": "--equal-parameters"}
OPTIONS = (
    "lengths", "width", "kernel", "heads", "window", "widths", "kernels", "batches", "parts", "seed", "device",
)  # fmt: skip


def write_page(comparison: Comparison) -> str:
    """The whole report as text.

    >>> from regard.compare.comparison import Comparison
    >>> text = write_page(Comparison({"seed": 0}, {"processor": "<b>"}, {}))
    >>> "&lt;b&gt;" in text, "<b>" in text
    (True, False)
    """
    style = STYLE.read_text(encoding="utf-8")
    policy = f"default-src 'none'; style-src '{digest(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    tables, readings = list_tables(comparison), write_readings(comparison)
    names = [name for name in ("textbook", *PARTS) if name in readings]
    links = "\n".join(f'<li><a href="#{name}">{escape(TITLES[name])}</a></li>' for name in names)
    sections = "\n".join(
        _write_section(name, readings[name], [table for table in tables if table.part == name], comparison)
        for name in names
    )
    missing = tell_missing(comparison.parts)
    missing = f"\n<p><strong>{escape(missing)}</strong></p>" if missing else ""
    # in the order of the file beside it: a page drawn again from that is the same page
    data = json.loads(comparison.to_json())
    # data-ready: what opens the page need not wait for a script, there is none
    return f"""<!DOCTYPE html>
<html lang="en" data-ready="">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{TITLE}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the report</a>
<header>
<h1>{TITLE}</h1>
<p class="lead">What each layer costs, how far it sees and what it learns: {escape(_describe(comparison))}.</p>{missing}
<nav aria-label="Contents"><ol>
{links}
</ol></nav>
</header>
<main id="content">
{sections}
</main>
<footer>
{_write_footer(comparison)}
</footer>
<script type="application/json" id="regard-data">{write_json(data)}</script>
</body>
</html>
"""


def escape(text: Any) -> str:
    """Text that is never markup; half a surrogate pair is no character, and no file could hold it."""
    return html.escape(str(text).encode(errors="replace").decode())


def raise_powers(text: str) -> str:
    """Escaped text with its exponents raised.

    >>> raise_powers(escape("n^1.98 d^2.00 < 3"))
    'n<sup>1.98</sup> d<sup>2.00</sup> &lt; 3'
    """
    return re.sub(r"\b([ndk])\^(-?\d+(?:\.\d+)?)", r"\1<sup>\2</sup>", text)


def _describe(comparison: Comparison) -> str:
    machine, quick = comparison.machine, " (a quick look)" if comparison.settings.get("is_quick") else ""
    facts = [machine.get("processor"), f"torch {machine['torch']}" if "torch" in machine else None]
    return f"measured{quick} on {', '.join(str(fact) for fact in facts if fact) or 'a machine'}"


def _write_section(name: str, reading: str, tables: Sequence[Listing], comparison: Comparison) -> str:
    part = comparison.parts.get(name, {})
    blocks = [f'<section id="{name}" aria-labelledby="{name}-title">', f'<h2 id="{name}-title">{TITLES[name]}</h2>']
    # the textbooks' table is what is looked for: it comes before what is said of it
    shown = [write_table(table.columns, table.rows, table.title, table.note) for table in tables]
    said = f"<p>{raise_powers(escape(reading))}</p>"
    blocks += [*shown, said] if name == "textbook" else [said]
    pictures = [picture for picture in PICTURES if picture.part == name]
    measured = [name_kind(kind) for kind in list_kinds(part.get("rows", []))]
    if name in ("recall", "order", "digits") and len(measured) < 2:
        only = f"{escape(measured[0])} alone" if measured else "none"
        blocks.append(f'<p class="note">No figure: it sets layers side by side, and {only} was measured.</p>')
    else:
        blocks += [_write_picture(picture, part, comparison.settings) for picture in pictures]
    if name != "textbook":
        blocks += shown
    listed = [_write_list(name, key, part) for key in LISTS if part.get(key) and _is_list(part[key])]
    if listed:
        blocks += ["<details>", "<summary>All numbers</summary>", *listed, "</details>"]
    return "\n".join([*blocks, "</section>"])


def _is_list(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(row, Mapping) for row in found)


def _write_picture(picture: Picture, part: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    light = write_svg(picture, part, settings)
    alt = f"Plot of {picture.name}. {picture.caption} The numbers are in the tables of this section."
    # as wide as it was drawn: its letters are then as large as those of the page
    width, height = (round(float(size) * 96 / 72) for size in re.findall(r'(?:width|height)="([\d.]+)pt"', light)[:2])
    return f"""<figure>
<picture>
<source media="(prefers-color-scheme: dark)" srcset="{_write_address(repaint(light))}">
<img src="{_write_address(light)}" alt="{escape(alt)}" width="{width}" height="{height}">
</picture>
<figcaption>{escape(picture.caption)}</figcaption>
</figure>"""


def _write_address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str, note: str = "") -> str:
    """A table that scrolls by itself where it is too wide, by hand or by key.

    >>> print(write_table(("layer", "n"), (("conv", "3"),), "Sizes").splitlines()[5])
    <tr><th scope="row">conv</th><td class="right">3</td></tr>
    """
    right = find_numbers(rows, len(columns))
    heads = "".join(
        f'<th scope="col"{_align(number in right)}>{escape(column)}</th>' for number, column in enumerate(columns)
    )
    lines = []
    for row in rows:
        first, *others = row
        cells = "".join(
            f"<td{_align(number in right)}>{_write_cell(cell)}</td>" for number, cell in enumerate(others, start=1)
        )
        lines.append(f'<tr><th scope="row">{_write_cell(first)}</th>{cells}</tr>')
    body = "\n".join(lines)
    said = f'\n<p class="note">{escape(note)}</p>' if note else ""
    return f"""<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">
<table>
<caption>{escape(title)}</caption>
<thead><tr>{heads}</tr></thead>
<tbody>
{body}
</tbody>
</table>
</div>{said}"""


def _align(is_right: bool) -> str:
    return ' class="right"' if is_right else ""


def _write_cell(cell: str) -> str:
    lines = [raise_powers(escape(line)) for line in cell.split("\n")]
    if len(lines) == 1:
        return lines[0]
    kinds = ("book" if line.startswith("O(") else "found" for line in lines)
    return "".join(f'<span class="{kind}">{line}</span>' for kind, line in zip(kinds, lines, strict=True))


def _write_list(of: str, name: str, part: Mapping[str, Any]) -> str:
    rows: Sequence[Mapping[str, Any]] = part[name]
    if name == "crossings":
        rows = [{**row, "spans": show_crossing(row, part["rows"])} for row in rows]
    known = FIELDS[of].get(name, ("kind",))
    columns = [*known, *sorted({key for row in rows for key in row} - {*known})]
    texts = [tuple(show_value(column, row.get(column)) for column in columns) for row in rows]
    return write_table([column.replace("_", " ") for column in columns], texts, LISTS[name])


def show_value(column: str, value: Any) -> str:
    """A value of a list as a cell; the column says what it is.

    >>> show_value("exponents", {"n": 2.0, "d": 1.0}), show_value("interval", [0.98, 1.02])
    ('n^2.00 d^1.00', '0.98 to 1.02')
    """
    if value is not None and column in SHOWN:
        return SHOWN[column](value)
    if isinstance(value, Mapping):
        if column == "exponents":
            return show_powers(value)
        return ", ".join(f"{key} {show_value('', each)}" for key, each in sorted(value.items()))
    if isinstance(value, list):
        return " to ".join(show_number(each) for each in value)
    return show_number(value)


def write_command(settings: Mapping[str, Any]) -> str:
    """What was called, or could have been: an option for all that is not as it is by default.

    >>> write_command(Settings(seed=3, parts=("steps", "paths")).quicken().to_dict())
    'regard compare --quick --parts steps,paths --seed 3'
    """
    plain = (Settings().quicken() if settings.get("is_quick") else Settings()).to_dict()
    given = {**settings, **(settings.get("dims") or {})}
    usual = {**plain, **plain["dims"]}
    words = ["regard compare"]
    words += [flag for key, flag in FLAGS.items() if given.get(key) is True]
    for name in OPTIONS:
        value = given.get(name, usual[name])
        value = list(value) if isinstance(value, tuple) else value
        if value != usual[name]:
            words.append(f"--{name} {','.join(map(str, value)) if isinstance(value, list) else value}")
    return " ".join(words)


def _write_footer(comparison: Comparison) -> str:
    blocks = ["<h2>How it was made</h2>", f"<p><code>{escape(write_command(comparison.settings))}</code></p>"]
    blocks += ["<h3>Machine</h3>", _write_facts(comparison.machine.items())]
    blocks += ["<h3>Settings</h3>", _write_facts(comparison.settings.items())]
    return "\n".join(blocks)


def _write_facts(facts: Iterable[tuple[str, Any]]) -> str:
    lines = "\n".join(
        f"<dt>{escape(key.replace('_', ' '))}</dt><dd>{escape(_show_fact(value))}</dd>" for key, value in sorted(facts)
    )
    return f"<dl>\n{lines}\n</dl>" if lines else ""


def _show_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_show_fact(each)}" for key, each in sorted(value.items()))
    if isinstance(value, list | tuple):
        return ", ".join(map(_show_fact, value))
    return show_number(value) if not isinstance(value, int) or isinstance(value, bool) else str(value)
