"""The report: one file of HTML that holds all of it, runs nothing and fetches nothing."""

from __future__ import annotations

import base64
import html
import inspect
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from string import Template
from typing import Any

from regard.compare.part import Listing, Part, find_part
from regard.compare.report.cells import SHOWN, name_kind, show_number
from regard.compare.report.figures import Draw, repaint, write_svg
from regard.compare.rows import Numbers, group
from regard.compare.settings import Settings
from regard.compare.tables import find_numbers, list_tables, read_textbook, tell_missing
from regard.views.page.build import digest, write_json

ASSETS = pathlib.Path(__file__).parent / "assets"
TITLE = "Convolution, recurrence and self-attention, measured"
TEXTBOOK = "The textbooks' table, measured"
# the lists of a part that are tables; maps are pictures
LISTS = {
    "fits": "Fits", "crossings": "Crossings", "edges": "Edges", "rows": "Measurements", "skipped": "Left out",
    "training": "Training",
}  # fmt: skip
# settings as the command line has them
FLAGS = {"is_quick": "--quick", "has_equal_parameters": "--equal-parameters"}
OPTIONS = (
    "lengths", "width", "kernel", "heads", "window", "widths", "kernels", "batches", "parts", "seed", "device",
)  # fmt: skip


def write_page(parts: Numbers, settings: Numbers, machine: Numbers, data: str = "null") -> str:
    """The whole report as text; it carries the JSON of `data`.

    >>> text = write_page({}, {"seed": 0}, {"processor": "<b>"})
    >>> "&lt;b&gt;" in text, "<b>" in text
    (True, False)
    """
    style = (ASSETS / "report.css").read_text(encoding="utf-8")
    tables = list_tables(parts, settings)
    titles = {name: find_part(name).title for name in parts}
    blocks = {name: _write_part(find_part(name), parts[name], settings, tables[name]) for name in parts}
    if reading := read_textbook(parts):
        titles = {"textbook": TEXTBOOK, **titles}
        # the textbooks' table is what is looked for: it comes before what is said of it
        blocks["textbook"] = [*map(write_table, tables["textbook"]), _write_text(reading)]
    sections = (
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{title}</h2>\n'
        + "\n".join([*blocks[name], "</section>"])
        for name, title in titles.items()
    )
    missing = escape(tell_missing(parts))
    footer = ["<h2>How it was made</h2>", f"<p><code>{escape(write_command(settings))}</code></p>"]
    footer += ["<h3>Machine</h3>", _write_facts(machine), "<h3>Settings</h3>", _write_facts(settings)]
    return Template((ASSETS / "report.html").read_text(encoding="utf-8")).substitute(
        policy=f"default-src 'none'; style-src '{digest(style)}'; img-src data:; base-uri 'none'; form-action 'none'",
        title=TITLE,
        style=style,
        lead=escape(_describe(settings, machine)),
        missing=f"\n<p><strong>{missing}</strong></p>" if missing else "",
        links="\n".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in titles.items()),
        sections="\n".join(sections),
        footer="\n".join(footer),
        data=write_json(json.loads(data)),
    )


def escape(text: Any) -> str:
    """Text that is never markup; half a surrogate pair is no character, and no file could hold it."""
    return html.escape(str(text).encode(errors="replace").decode())


def raise_powers(text: str) -> str:
    """Escaped text with its exponents raised.

    >>> raise_powers(escape("n^1.98 d^2.00 < 3"))
    'n<sup>1.98</sup> d<sup>2.00</sup> &lt; 3'
    """
    return re.sub(r"\b([ndk])\^(-?\d+(?:\.\d+)?)", r"\1<sup>\2</sup>", text)


def _describe(settings: Numbers, machine: Numbers) -> str:
    quick = " (a quick look)" if settings.get("is_quick") else ""
    facts = [str(machine.get("processor") or ""), f"torch {machine['torch']}" if "torch" in machine else ""]
    return f"measured{quick} on {', '.join(filter(None, facts)) or 'a machine'}"


def _write_text(reading: str) -> str:
    return f"<p>{raise_powers(escape(reading))}</p>"


def _write_part(part: Part, numbers: Numbers, settings: Numbers, tables: Sequence[Listing]) -> Iterable[str]:
    yield _write_text(" ".join(part.read(numbers, settings)))
    measured = [name_kind(kind) for kind in group(numbers.get("rows", []), "kind")]
    if part.nature == "learned" and len(measured) < 2:
        only = f"{escape(measured[0])} alone" if measured else "none"
        yield f'<p class="note">No figure: it sets layers side by side, and {only} was measured.</p>'
    else:
        yield from (_write_picture(draw, numbers, settings) for draw in part.pictures)
    yield from map(write_table, tables)
    if listed := [_write_list(part, key, numbers) for key in LISTS if numbers.get(key)]:
        yield from ("<details>", "<summary>All numbers</summary>", *listed, "</details>")


def _write_picture(draw: Draw, numbers: Numbers, settings: Numbers) -> str:
    light, caption = write_svg(draw, numbers, settings), escape(inspect.cleandoc(draw.__doc__ or "").replace("\n", " "))
    # as wide as it was drawn: its letters are then as large as those of the page
    width, height = (round(float(size) * 96 / 72) for size in re.findall(r'(?:width|height)="([\d.]+)pt"', light)[:2])
    alt = f"Plot of {draw.__name__.removeprefix('draw_')}. {caption} The numbers are in the tables of this section."
    return f"""<figure>
<picture>
<source media="(prefers-color-scheme: dark)" srcset="{_write_address(repaint(light))}">
<img src="{_write_address(light)}" alt="{alt}" width="{width}" height="{height}">
</picture>
<figcaption>{caption}</figcaption>
</figure>"""


def _write_address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def write_table(table: Listing) -> str:
    """A table that scrolls by itself where it is too wide, by hand or by key.

    >>> print(write_table(Listing("Sizes", ("layer", "n"), (("conv", "3"),))).splitlines()[5])
    <tr><th scope="row">conv</th><td class="right">3</td></tr>
    """
    right = find_numbers(table)
    sides = [' class="right"' if number in right else "" for number in range(len(table.columns))]
    pairs = zip(sides, table.columns, strict=True)
    heads = "".join(f'<th scope="col"{side}>{escape(name)}</th>' for side, name in pairs)
    lines = []
    for first, *others in table.rows:
        cells = "".join(f"<td{side}>{_write_cell(cell)}</td>" for side, cell in zip(sides[1:], others, strict=True))
        lines.append(f'<tr><th scope="row">{_write_cell(first)}</th>{cells}</tr>')
    body, note = "\n".join(lines), f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"""<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">
<table>
<caption>{escape(table.title)}</caption>
<thead><tr>{heads}</tr></thead>
<tbody>
{body}
</tbody>
</table>
</div>{note}"""


def _write_cell(cell: str) -> str:
    lines = [raise_powers(escape(line)) for line in cell.split("\n")]
    if len(lines) == 1:
        return lines[0]
    return "".join(f'<span class="{"book" if line.startswith("O(") else "found"}">{line}</span>' for line in lines)


def _write_list(part: Part, name: str, numbers: Numbers) -> str:
    rows = part.list_rows(name, numbers)
    known = [field.rstrip("#?") for field in part.lists.get(name, "kind").split()]
    columns = [*known, *sorted({key for row in rows for key in row} - {*known})]
    texts = tuple(tuple(show_value(column, row.get(column)) for column in columns) for row in rows)
    return write_table(Listing(LISTS[name], tuple(column.replace("_", " ") for column in columns), texts))


def show_value(column: str, value: Any) -> str:
    """A value of a list as a cell; the column says what it is.

    >>> show_value("exponents", {"n": 2.0, "d": 1.0}), show_value("interval", [0.98, 1.02])
    ('n^2.00 d^1.00', '0.98 to 1.02')
    """
    if value is not None and column in SHOWN:
        return SHOWN[column](value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {show_value('', each)}" for key, each in sorted(value.items()))
    if isinstance(value, list):
        return " to ".join(map(show_number, value))
    return show_number(value)


def write_command(settings: Numbers) -> str:
    """What was called, or could have been: an option for all that is not as it is by default.

    >>> write_command(Settings(seed=3, parts=("steps", "paths")).quicken().to_dict())
    'regard compare --quick --parts steps,paths --seed 3'
    """
    plain = (Settings().quicken() if settings.get("is_quick") else Settings()).to_dict()
    usual, given = {**plain, **plain["dims"]}, {**settings, **(settings.get("dims") or {})}
    words = ["regard compare", *(flag for key, flag in FLAGS.items() if given.get(key) is True)]
    for name in OPTIONS:
        value = given.get(name, usual[name])
        if value != usual[name]:
            words.append(f"--{name} {','.join(map(str, value)) if isinstance(value, list) else value}")
    return " ".join(words)


def _write_facts(facts: Numbers) -> str:
    told = ((key.replace("_", " "), _show_fact(value)) for key, value in sorted(facts.items()))
    lines = "\n".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in told)
    return f"<dl>\n{lines}\n</dl>" if lines else ""


def _show_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_show_fact(each)}" for key, each in sorted(value.items()))
    if isinstance(value, list):
        return ", ".join(map(_show_fact, value))
    # a seed or a length as it is given to the command, without commas
    return str(value) if type(value) is int else show_number(value)
