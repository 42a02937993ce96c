"""How all pictures of a comparison look: one colour and one mark for a kind, on light paper and on dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from regard.compare.report.cells import average, name_kind
from regard.compare.rows import Numbers, group
from regard.views.labels import show_line
from regard.views.sheet import ENDINGS, open_sheet

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

    paper: str
    ink: str
    quiet: str
    line: str


LIGHT = Theme(paper="#ffffff", ink="#1c1d20", quiet="#56585f", line="#e3e3df")
DARK = Theme(paper="#1b1e24", ink="#ecedf0", quiet="#a9aeb9", line="#343944")


class Sheet:
    """A figure of panels: `begin` it, draw on the axes that this returns, `name` and `scale` them, `explain` lines."""

    def __init__(self, paper: Any, theme: Theme = LIGHT) -> None:
        self.paper, self.theme = paper, theme
        self.figure: Any = None
        # of the legend, by their labels
        self.lines: dict[str, Any] = {}

    def begin(self, width: float, height: float, down: int = 1, across: int = 1) -> Any:
        """So many panels of this size in inches, as rows of a table."""
        size, theme = (width * across, height * down), self.theme
        self.figure = self.paper.Figure(figsize=size, layout="constrained", facecolor=theme.paper)
        panels = self.figure.subplots(down, across, squeeze=False)
        for axes in panels.flat:
            axes.set_facecolor(theme.paper)
            axes.tick_params(labelsize=9, length=3, color=theme.quiet, labelcolor=theme.ink, which="both")
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color(theme.quiet)
        return panels

    def name(self, axes: Any, title: str, x: str = "", y: str = "") -> None:
        axes.set_title(show_line(title), size=10.5, color=self.theme.ink, loc="left")
        axes.set_xlabel(x, size=9.5, color=self.theme.quiet)
        axes.set_ylabel(y, size=9.5, color=self.theme.quiet)

    def plot(self, axes: Any, kind: str, x: Any, y: Any, label: str = "", **how: Any) -> Any:
        """A line of measured points, in the colour and with the mark of the kind."""
        colour, mark = look_up(kind)
        how = {"linewidth": 1.8, "markersize": 5.5, "markeredgecolor": self.theme.paper, "markeredgewidth": 0.6, **how}
        (line,) = axes.plot(x, y, color=colour, marker=mark, label=show_line(label or name_kind(kind)), **how)
        self.lines[line.get_label()] = line
        return line

    def plot_law(self, axes: Any, kind: str, x: Any, y: Any, linestyle: Any = "-") -> None:
        """What the points of a kind lie on."""
        axes.plot(x, y, color=look_up(kind)[0], linestyle=linestyle, linewidth=1.5, label="_formula", zorder=1)

    def note(self, axes: Any, text: str, place: tuple[float, float], transform: Any, ha: str = "left") -> None:
        """A small text beside a line."""
        how = {"xytext": (4 if ha == "left" else -4, 3), "textcoords": "offset points", "fontsize": 8, "ha": ha}
        axes.annotate(text, place, xycoords=transform, color=self.theme.quiet, **how)

    def scale(self, axes: Any, x: Sequence[float], show: Callable[[float], str] | None = None, base: int = 10) -> None:
        """Logarithmic axes over lines behind the data: the values of x, as many as there is room for, and those of y as
        `show` writes them, where it is given. Without any x it says that there is nothing.
        """
        from matplotlib import ticker

        axes.grid(color=self.theme.line, linewidth=0.8)
        axes.set_axisbelow(True)
        if not x:
            return self.leave_empty(axes)
        if show is not None:
            axes.set_yscale("log", base=base)
            low, high = axes.get_ylim()
            # more ticks where there is less than a decade
            subs = (1.0, 2.0, 5.0) if base == 10 and high / low < 30 else (1.0,)
            axes.yaxis.set_major_locator(ticker.LogLocator(base, subs=subs, numticks=9))
            axes.yaxis.set_major_formatter(lambda value, _: show(value))
            axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        known = thin(sorted(set(x)))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(ticker.FixedLocator(known))
        axes.xaxis.set_major_formatter(ticker.FixedFormatter([f"{value:,}" for value in known]))
        axes.xaxis.set_minor_locator(ticker.NullLocator())

    def explain(self, columns: int = 6) -> None:
        """One legend for all panels, below them: each label once, in as many rows as the figure's width asks for."""
        for down in range(1, len(self.lines) + 1):
            across = -(-len(self.lines) // down)
            if across > columns:
                continue
            legend = self.figure.legend(
                handles=list(self.lines.values()), loc="outside lower left", ncols=across, frameon=False,
                fontsize=9.5, labelcolor=self.theme.ink, handlelength=2.4, columnspacing=1.6,
            )  # fmt: skip
            if across == 1 or legend.get_window_extent().x1 <= self.figure.bbox.x1:
                return
            legend.remove()

    def leave_empty(self, axes: Any) -> None:
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", va="center", color=self.theme.quiet)
        axes.set_xticks([])
        axes.set_yticks([])


# a picture of a part's numbers, by settings; its name is what it draws, and its docstring is the caption
Draw = Callable[[Sheet, Numbers, Numbers], None]


def look_up(kind: str) -> tuple[str, str]:
    """A kind's colour and mark."""
    return LOOKS.get(kind, OTHER)


def write_svg(draw: Draw, part: Numbers, settings: Numbers, theme: Theme = LIGHT) -> str:
    """What is drawn as text, the same for the same numbers."""
    with open_sheet() as paper:
        sheet, content = Sheet(paper, theme), io.StringIO()
        draw(sheet, part, settings)
        sheet.figure.savefig(content, format="svg", metadata=ENDINGS["svg"])
    return content.getvalue()


def repaint(svg: str, before: Theme = LIGHT, after: Theme = DARK) -> str:
    """A picture as it would be on other paper, without drawing it again.

    >>> repaint('<path style="fill: #ffffff"/>')
    '<path style="fill: #1b1e24"/>'
    """
    inks = {getattr(before, ink.name): getattr(after, ink.name) for ink in fields(Theme)}
    return re.sub("|".join(inks), lambda found: inks[found[0]], svg)


def thin(values: list[float], gap: float = 0.09) -> list[float]:
    """Of sorted values those that are not too near to one another, as part of a logarithmic axis; the last is kept.

    >>> thin([32, 64, 128, 1024, 1280, 1536])
    [32, 64, 128, 1024, 1536]
    """
    kept = [values[-1]]
    for value in reversed(values):
        if value < kept[0] and math.log(kept[0] / value) >= gap * math.log(values[-1] / values[0]):
            kept.insert(0, value)
    return kept


def average_by(rows: Sequence[Numbers], axis: str) -> tuple[list[int], list[float]]:
    """Values of an axis, and percent right at each; NaN where nothing was asked."""
    found = sorted(group(rows, axis).items())
    return [value for value, _ in found], [100 * average(own) for _, own in found]


def size_mark(number: int) -> float:
    """Of kinds that share a point, each is seen: the first is the largest.

    >>> [size_mark(number) for number in (0, 5)]
    [10.0, 6.0]
    """
    return max(10.0 - 0.8 * number, 5.0)


def part_laws(x: Sequence[float], y: Sequence[float], fit: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Points with a gap where the fitted law begins, if it is not the law of all of them: no line joins two laws.

    >>> part_laws([8, 16, 1024], [3, 3, 18], {"from": 1024})
    ([8, 16, 1024, 1024], [3, 3, nan, 18])
    """
    at = next((k for k, n in enumerate(x) if n >= fit.get("from", n)), 0)
    return [*x[:at], *([x[at]] * bool(at)), *x[at:]], [*y[:at], *([math.nan] * bool(at)), *y[at:]]
