"""How all pictures of a comparison look: one colour and one mark for a kind, on light paper and on dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from regard.compare.report.cells import name_kind
from regard.views.labels import show_line

# Okabe and Ito's colours, told apart by every kind of eye; marks tell them apart where there is no colour
LOOKS = {
    "conv": ("#D55E00", "s"),
    "rnn": ("#CC79A7", "v"),
    "gru": ("#E69F00", "D"),
    "attention": ("#0072B2", "o"),
    "windowed": ("#56B4E9", "^"),
    "linear": ("#009E73", "h"),
}
OTHER = ("#888888", "X")


@dataclass(frozen=True)
class Theme:
    """Paper and ink."""

    name: str
    paper: str
    ink: str
    quiet: str
    line: str


LIGHT = Theme("light", paper="#ffffff", ink="#1c1d20", quiet="#56585f", line="#e3e3df")
DARK = Theme("dark", paper="#1b1e24", ink="#ecedf0", quiet="#a9aeb9", line="#343944")


def look_up(kind: str) -> tuple[str, str]:
    """A kind's colour and mark."""
    return LOOKS.get(kind, OTHER)


def begin(paper: Any, theme: Theme, down: int, across: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure of this many panels, each of this size in inches, and the panels as rows of a table."""
    figure = paper.Figure(figsize=(size[0] * across, size[1] * down), layout="constrained", facecolor=theme.paper)
    panels = figure.subplots(down, across, squeeze=False)
    for axes in panels.flat:
        axes.set_facecolor(theme.paper)
        axes.tick_params(labelsize=9, length=3, color=theme.quiet, labelcolor=theme.ink, which="both")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(theme.quiet)
    return figure, panels


def name_axes(axes: Any, theme: Theme, title: str, x: str = "", y: str = "") -> None:
    axes.set_title(show_line(title), size=10.5, color=theme.ink, loc="left")
    axes.set_xlabel(x, size=9.5, color=theme.quiet)
    axes.set_ylabel(y, size=9.5, color=theme.quiet)


def rule(axes: Any, theme: Theme) -> None:
    """Lines behind the data."""
    axes.grid(color=theme.line, linewidth=0.8)
    axes.set_axisbelow(True)


def scale_lengths(axes: Any, values: Iterable[float]) -> None:
    """A logarithmic axis whose ticks are the lengths themselves, as many as there is room for."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    known = thin(sorted(set(values)))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(known))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{value:,}" for value in known]))
    axes.xaxis.set_minor_locator(NullLocator())


def thin(values: list[float], gap: float = 0.09) -> list[float]:
    """Of sorted values those that are not too near to one another, as part of a logarithmic axis; the last is kept.

    >>> thin([32, 64, 128, 1024, 1280, 1536])
    [32, 64, 128, 1024, 1536]
    """
    room = gap * math.log(values[-1] / values[0]) if values else 0.0
    kept: list[float] = []
    for value in reversed(values):
        if not kept or math.log(kept[-1] / value) >= room:
            kept.append(value)
    return kept[::-1]


def scale_values(axes: Any, show: Callable[[float], str], base: int = 10) -> None:
    """A logarithmic axis whose ticks are written by `show`; more of them where there is less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log", base=base)
    low, high = axes.get_ylim()
    is_short = base == 10 and high / low < 30
    axes.yaxis.set_major_locator(LogLocator(base, subs=(1.0, 2.0, 5.0) if is_short else (1.0,), numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def size_mark(number: int) -> float:
    """Of kinds that share a point, each is seen: the first is the largest.

    >>> [size_mark(number) for number in (0, 5)]
    [10.0, 6.0]
    """
    return max(10.0 - 0.8 * number, 5.0)


def plot_kind(axes: Any, theme: Theme, kind: str, x: Any, y: Any, label: str | None = None, **how: Any) -> Any:
    """A line of measured points, in the colour and with the mark of the kind."""
    colour, mark = look_up(kind)
    how = {"linewidth": 1.8, "markersize": 5.5, "markeredgecolor": theme.paper, "markeredgewidth": 0.6, **how}
    (line,) = axes.plot(x, y, color=colour, marker=mark, label=show_line(label or name_kind(kind)), **how)
    return line


def explain(figure: Any, theme: Theme, lines: Iterable[Any], columns: int = 6) -> None:
    """One legend for all panels, below them: each label once, in as many rows as the figure's width asks for."""
    shown = {line.get_label(): line for line in lines}
    for down in range(1, len(shown) + 1):
        across = -(-len(shown) // down)
        if across > columns:
            continue
        legend = figure.legend(
            handles=list(shown.values()), loc="outside lower left", ncols=across, frameon=False,
            fontsize=9.5, labelcolor=theme.ink, handlelength=2.4, columnspacing=1.6,
        )  # fmt: skip
        if across == 1 or legend.get_window_extent().x1 <= figure.bbox.x1:
            return
        legend.remove()


def leave_empty(axes: Any, theme: Theme, text: str = "no values") -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=theme.quiet)
    axes.set_xticks([])
    axes.set_yticks([])
