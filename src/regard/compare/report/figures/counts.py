"""Pictures of what is counted, and of what is timed, against the length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from regard.compare.report.cells import choose_sizes, list_kinds, name_kind, show_seconds, show_steps, take
from regard.compare.report.figures.style import (
    Theme,
    begin,
    explain,
    leave_empty,
    look_up,
    name_axes,
    plot_kind,
    rule,
    scale_lengths,
    scale_values,
    size_mark,
)  # fmt: skip
from regard.engine.call import show_bytes

Part = Mapping[str, Any]
TITLES = ("where tokens meet", "the whole layer")


def draw_operations(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """Operations against n at one width: where tokens meet beside the formula, and of the whole layer."""
    rows = choose_sizes(part["rows"], settings)
    figure, panels = begin(paper, theme, 1, 2, (5.4, 3.9))
    d, k = (next((row[axis] for row in rows if row[axis] is not None), None) for axis in "dk")
    sizes = f"d = {d}" + (f", k = {k}" if k is not None else "")
    lines = []
    for axes, of, fitted, title in zip(panels[0], ("mixing", "operations"), ("mixing", "whole"), TITLES, strict=True):
        name_axes(axes, theme, f"{title} ({sizes})", "n, tokens", "operations")
        powers = {fit["kind"]: fit["exponents"].get("n") for fit in take(part["fits"], of=fitted)}
        ends = {}
        for number, kind in enumerate(list_kinds(rows)):
            own = sorted(take(rows, kind=kind), key=lambda row: int(row["n"]))
            x, y = [row["n"] for row in own], [row[of] for row in own]
            mark = size_mark(number)
            lines.append(plot_kind(axes, theme, kind, x, y, linestyle="none", markersize=mark, zorder=3 + number))
            drawn = [row["formula"] for row in own] if of == "mixing" else y
            if None not in drawn:
                lawful = part_laws(x, drawn, take(part["fits"], kind=kind))
                axes.plot(*lawful, color=look_up(kind)[0], zorder=1, linewidth=1.5, label="_formula")
            if powers.get(kind) is not None:
                ends[kind] = (y[-1], f"n^{powers[kind]:.2f}", look_up(kind)[0])
        if rows:
            scale_values(axes, show_count)
            _note_ends(axes, list(ends.values()))
        _finish(axes, theme, rows)
    explain(figure, theme, lines)
    return figure


def part_laws(x: Sequence[float], y: Sequence[float], fits: Sequence[Part]) -> tuple[list[float], list[float]]:
    """Points with a gap where the fitted law begins, if it is not the law of all of them: no line joins two laws.

    >>> part_laws([8, 16, 1024], [3, 3, 18], [{"from": 1024}])
    ([8, 16, 1024, 1024], [3, 3, nan, 18])
    """
    start = next((fit["from"] for fit in fits if "from" in fit), None)
    at = next((k for k, n in enumerate(x) if start is not None and n >= start), 0)
    return [*x[:at], *([x[at]] * bool(at)), *x[at:]], [*y[:at], *([math.nan] * bool(at)), *y[at:]]


def show_count(count: float) -> str:
    """
    >>> show_count(2e6), show_count(500)
    ('2 M', '500')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g}"


def _note_ends(axes: Any, ends: list[tuple[float, str, str]]) -> None:
    """Texts right of the panel in colours, each at the height of its line's end or as near as there is room."""
    low, high = map(math.log, axes.get_ylim())
    last = -1.0
    for value, text, colour in sorted(ends):
        last = max((math.log(value) - low) / (high - low), last + 0.055)
        axes.text(1.01, last, text, transform=axes.transAxes, va="center", fontsize=8, color=colour)


def _finish(axes: Any, theme: Theme, rows: Any) -> None:
    rule(axes, theme)
    if rows:
        scale_lengths(axes, (row["n"] for row in rows))
    else:
        leave_empty(axes, theme)


def draw_steps(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """The longest chain against n, and the line through it."""
    rows = choose_sizes(part["rows"], settings)
    figure, panels = begin(paper, theme, 1, 1, (7.2, 3.9))
    axes = panels[0, 0]
    name_axes(axes, theme, "operations that wait for one another", "n, tokens", "longest chain")
    fits = {fit["kind"]: fit for fit in part["fits"]}
    lines = []
    for number, kind in enumerate(list_kinds(rows)):
        own = sorted(take(rows, kind=kind), key=lambda row: int(row["n"]))
        label = name_kind(kind) + (f": {show_steps(fits[kind])}" if kind in fits else "")
        x, y = part_laws([row["n"] for row in own], [row["chain"] for row in own], take(part["fits"], kind=kind))
        lines.append(plot_kind(axes, theme, kind, x, y, label, markersize=size_mark(number)))
    if rows:
        scale_values(axes, show_count)
    _finish(axes, theme, rows)
    explain(figure, theme, lines, columns=3)
    return figure


def draw_seconds(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """Seconds against n, forward and training, by batch; shaded from the lower quartile to the upper."""
    return _draw_cost(paper, part, theme, "seconds")


def draw_memory(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """Extra memory at the peak against n, forward and training, by batch."""
    return _draw_cost(paper, part, theme, "bytes")


def _draw_cost(paper: Any, part: Part, theme: Theme, of: str) -> Any:
    rows = [row for row in part["rows"] if row[of] is not None and row[of] > 0]
    batches = sorted({row["batch"] for row in rows}) or [None]
    passes = [doing for doing in ("forward", "training") if take(rows, **{"pass": doing})] or ["forward"]
    figure, panels = begin(paper, theme, len(passes), len(batches), (5.4, 3.4))
    lines = []
    for doing, row_of in zip(passes, panels, strict=True):
        for batch, axes in zip(batches, row_of, strict=True):
            here = take(rows, batch=batch, **{"pass": doing})
            for kind in list_kinds(here):
                own = sorted(take(here, kind=kind), key=lambda row: int(row["n"]))
                x = [row["n"] for row in own]
                lines.append(plot_kind(axes, theme, kind, x, [row[of] for row in own]))
                if of == "seconds":
                    low, high = ([row[edge] for row in own] for edge in ("low", "high"))
                    axes.fill_between(x, low, high, color=look_up(kind)[0], alpha=0.18, linewidth=0)
            if here and of == "bytes":
                scale_values(axes, lambda size: show_bytes(size).replace(".0 ", " "), base=2)
            elif here:
                scale_values(axes, show_seconds)
            name_axes(
                axes, theme, f"{doing}, batch {batch}", "n, tokens",
                "seconds" if of == "seconds" else "extra memory",
            )  # fmt: skip
            _finish(axes, theme, here)
    explain(figure, theme, lines)
    return figure
