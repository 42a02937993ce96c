"""Pictures of how far a layer sees: path lengths against n, and who depends on whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.compare.report.cells import choose, list_kinds, name_kind, take
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

Part = Mapping[str, Any]
STYLES = ("-", (0, (5, 2)), (0, (1, 1.6)))


def draw_paths(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """Measured path lengths as points, the formula as lines; convolution once for each kernel."""
    from matplotlib.lines import Line2D

    d = choose((row["d"] for row in part["rows"]), (settings.get("dims") or {}).get("width"))
    rows = [row for row in part["rows"] if row["d"] == d]
    figure, panels = begin(paper, theme, 1, 1, (7.2, 4.2))
    axes = panels[0, 0]
    name_axes(axes, theme, "until the last output depends on the first input", "n, tokens", "layers, or steps")
    lines = []
    for place, kind in enumerate(list_kinds(rows)):
        own = take(rows, kind=kind)
        for number, k in enumerate(sorted({row["k"] for row in own}, key=lambda k: k or 0)):
            here = sorted(take(own, k=k), key=lambda row: int(row["n"]))
            x = [row["n"] for row in here]
            style = STYLES[number % len(STYLES)]
            axes.plot(
                x, [row["formula"] for row in here], color=look_up(kind)[0], linestyle=style, linewidth=1.5,
                label="_formula", zorder=1,
            )  # fmt: skip
            y = [float("nan") if row["length"] is None else row["length"] for row in here]
            label = name_kind(kind) + (f", k = {k}" if k is not None else "")
            how = {"linestyle": "none", "markersize": size_mark(place + number), "zorder": 3 + place}
            points = plot_kind(axes, theme, kind, x, y, label, **how)
            # points and formula are two lines, and one entry of the legend
            entry = Line2D([], [])
            entry.update_from(points)
            entry.set(label=points.get_label(), linestyle=style, linewidth=1.5)
            lines.append(entry)
    if rows:
        scale_values(axes, lambda length: f"{length:g}")
        scale_lengths(axes, (row["n"] for row in rows))
        rule(axes, theme)
    else:
        leave_empty(axes, theme)
    explain(figure, theme, lines, columns=4)
    return figure


def draw_maps(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """Which outputs depend on which inputs: a row of panels for each depth, a column for each kind."""
    from matplotlib.colors import ListedColormap

    maps = part["maps"]
    kinds, depths = list_kinds(maps), sorted({one["layers"] for one in maps})
    figure, panels = begin(paper, theme, max(len(depths), 1), max(len(kinds), 1), (1.75, 1.85))
    for row, layers in zip(panels, depths, strict=False):
        for axes, kind in zip(row, kinds, strict=False):
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[["top", "right"]].set_visible(True)
            axes.spines[:].set_color(theme.line)
            found = take(maps, kind=kind, layers=layers)
            if not found:
                axes.set_visible(False)
                continue
            seen = [[int(mark) for mark in line] for line in found[0]["seen"]]
            # what is not seen is the paper, whichever it is
            colours = ListedColormap([(0, 0, 0, 0), look_up(kind)[0]])
            axes.imshow(seen, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
            if layers == depths[0]:
                name_axes(axes, theme, name_kind(kind))
                axes.title.set_fontsize(9)
            if kind == kinds[0]:
                axes.set_ylabel(f"{layers} layer{'s' if layers != 1 else ''}", size=9, color=theme.quiet)
    if not maps:
        leave_empty(panels[0, 0], theme)
    return figure
