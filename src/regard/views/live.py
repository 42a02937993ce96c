"""Live learning curves while a training runs, in a notebook and in a terminal."""

from __future__ import annotations

import io
import math
import os
import sys
import time
from numbers import Real
from typing import Any, Self

from regard.core import RegardError
from regard.views.braille import plot
from regard.views.curves import find_span, set_span
from regard.views.fonts import choose_fonts
from regard.views.labels import show_line
from regard.views.reading import check_title
from regard.views.sheet import LARGEST, check_path, open_sheet, save_figure
from regard.views.terminal import check_console

# Okabe and Ito's colours, told apart by every kind of eye; the next round of curves has another line
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
LINES = ("-", "--", ":", "-.")
# seconds between two drawings at least, and how many times its own cost a drawing waits
PAUSE, PATIENCE = 0.2, 5.0
# points of a curve that are drawn at most: the highest and lowest of every stretch
MOST = 2000
# letters at the end of one line, at most
WIDEST = 8
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def live(*names: str, title: str = "", console: Any = None) -> Board:
    """A live plot of learning curves, one for each name: in a notebook one picture that grows, else in the terminal.

    >>> import io
    >>> from rich.console import Console
    >>> with live("loss", "valid_loss", console=Console(file=io.StringIO())) as board:
    ...     for step in range(3):
    ...         board.add(step, loss=1 / (step + 1))
    ...     board.add(2, valid_loss=0.5)
    >>> board.series["loss"]
    [(0.0, 1.0), (1.0, 0.5), (2.0, 0.3333333333333333)]

    Without names, every name that `add` brings has a curve. Accuracies and the like alone are drawn from 0 to 100.
    Drawn at most five times a second, and at the end. Where the output is no terminal, once, at the end. It goes to the
    error stream, as the progress of a training does.
    """
    return Board(names, title, console)


class Board:
    """Learning curves by name, and where they are shown; `live` makes it."""

    def __init__(self, names: tuple[str, ...], title: str, console: Any) -> None:
        for name in names:
            if not isinstance(name, str) or not name:
                raise RegardError(f"names of curves must be text, got {str(name)[:40]!r}.")
        if len(set(names)) < len(names):
            raise RegardError("names of curves must differ: two are the same.")
        if "step" in names:
            raise RegardError("names of curves must not be 'step': that is what they are drawn over.")
        check_title(title)
        check_console(console)
        self._points: dict[str, dict[float, float]] = {name: {} for name in names}
        self._is_open = not names
        self._title, self._console = title, console
        self._screen: Any = None
        self._drawn, self._cost = -math.inf, 0.0

    @property
    def series(self) -> dict[str, list[tuple[float, float]]]:
        """The points of each curve, (step, value), in order; NaN where a value was not finite."""
        return {name: sorted(points.items()) for name, points in self._points.items()}

    def __enter__(self) -> Self:
        self._screen = _Notebook() if self._console is None and _is_notebook() else _Terminal(self._console)
        return self

    def __exit__(self, *error: object) -> None:
        screen, self._screen = self._screen, None
        screen.close(self)

    def add(self, step: float, **values: Any) -> None:
        """Add a point to each named curve; of two at one step, the later counts.

        A tensor of one number will do, though reading it makes a GPU wait. None, NaN and infinity are gaps.
        """
        number = _read(step)
        if math.isnan(number):
            raise RegardError(f"step must be a number, got {str(step)[:40]!r}.")
        read = {}
        for name, value in values.items():
            if name not in self._points and not self._is_open:
                known = ", ".join(self._points)[:80]
                raise RegardError(f"there is no curve {name[:40]!r}, only {known}: name it in live(…).")
            read[name] = _read(value)
            if math.isnan(read[name]) and not (value is None or _is_number(value)):
                raise RegardError(f"{name[:40]} must be a number, got {str(value)[:40]!r}.")
        for name, value in read.items():
            self._points.setdefault(name, {})[number] = value
        if self._screen is not None and self._screen.is_moving:
            now = time.monotonic()
            if now - self._drawn >= max(PAUSE, PATIENCE * self._cost):
                self._screen.draw(self)
                self._drawn = time.monotonic()
                self._cost = self._drawn - now

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the curves as a picture: .png, .svg or .pdf."""
        place = check_path(path)
        with open_sheet() as paper:
            save_figure(self._draw(paper), place)

    def _find_span(self) -> tuple[float, float] | None:
        return find_span(self._points, [value for points in self._points.values() for value in points.values()])

    def _draw(self, paper: Any) -> Any:
        from matplotlib.ticker import MaxNLocator

        figure = paper.Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        families, _ = choose_fonts("".join([self._title, *self._points]))
        for number, (name, points) in enumerate(self.series.items()):
            style = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number // len(COLOURS) % len(LINES)]}
            drawn = thin(points)
            few = {"marker": "o", "markersize": 3.5} if len(drawn) <= 40 else {}
            label = show_line(name) + _say_broken(points)
            axes.plot([x for x, _ in drawn], [y for _, y in drawn], label=label, linewidth=1.6, **style, **few)
        axes.set_xlabel("step", size=9)
        axes.tick_params(labelsize=8, length=3)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
        set_span(axes, self._find_span())
        if self._points:
            # beside the curves: however many, none is hidden
            side = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "ncols": 1 + len(self._points) // 14}
            axes.legend(frameon=False, prop={"family": families, "size": 8}, **side)
        if self._title:
            axes.set_title(show_line(self._title), size=11, family=families, loc="left")
        return figure

    def _write(self, width: int, height: int) -> Any:
        """The curves as text: each ends in its letter, which the list below explains with the last number."""
        from rich.text import Text

        series = self.series
        letters = {name: LETTERS[number % len(LETTERS)] for number, name in enumerate(series)}
        colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(series)}
        curves = {name: thin(points) for name, points in series.items()}
        room = min(len(series), WIDEST)
        lines, (left, right, low, high) = plot(curves, max(width - 10 - room, 8), height, self._find_span())
        text = Text(f"{show_line(self._title)}\n" if self._title else "", no_wrap=True, overflow="crop")
        ends = _find_ends(curves, letters, low, high, height)
        for row, line in enumerate(lines):
            value = high if row == 0 else low if row == height - 1 else None
            text.append(f"{'' if value is None else f'{value:.4g}':>8} ", style="dim")
            for letter, name in line:
                text.append(letter, style=colours.get(name, ""))
            text.append(ends[row] if len(ends[row]) <= room else f"{ends[row][: room - 1]}+", style="bold")
            text.append("\n")
        text.append(f"{'':>8} {left:g} … step {right:g}\n", style="dim")
        used = 0
        for name, points in series.items():
            last = next((f"{y:.4g}" for _, y in reversed(points) if not math.isnan(y)), "–")
            entry = f"{letters[name]} {show_line(name)} {last}{_say_broken(points)}"
            if used and used + len(entry) + 3 > width:
                text.append("\n")
                used = 0
            text.append("   " if used else "")
            text.append(entry, style=colours[name])
            used += len(entry) + 3
        return text


class _Terminal:
    """The plot, redrawn in its place; where there is no terminal, printed at the end."""

    def __init__(self, console: Any) -> None:
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError:
            raise RegardError("The live view needs the package rich: pip install rich.") from None
        self._console = console if console is not None else Console(stderr=True, highlight=False, markup=False)
        self.is_moving = bool(self._console.is_terminal)
        self._live: Any = Live(console=self._console, auto_refresh=False) if self.is_moving else None
        if self._live is not None:
            self._live.start()

    def draw(self, board: Board) -> None:
        self._live.update(self._render(board), refresh=True)

    def close(self, board: Board) -> None:
        if self._live is None:
            self._console.print(self._render(board))
            return
        try:
            self.draw(board)
        finally:
            self._live.stop()

    def _render(self, board: Board) -> Any:
        height = min(12, max(4, self._console.height - 6))
        return board._write(min(self._console.width, 100), height)


class _Notebook:
    """One picture in a notebook, updated in its place: no flicker, and no pile of pictures."""

    is_moving = True

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, board: Board) -> None:
        from IPython.display import display

        picture = _Picture(board)
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)

    def close(self, board: Board) -> None:
        self.draw(board)


class _Picture:
    def __init__(self, board: Board) -> None:
        with open_sheet() as paper:
            content = io.BytesIO()
            board._draw(paper).savefig(content, format="png", dpi=110)
        self._content = content.getvalue()

    def _repr_png_(self) -> bytes:
        return self._content


def thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Downsample a curve to look the same: of every stretch its lowest, its highest and its gaps.

    >>> thin([(0, 1.0), (1, 2.0)])
    [(0, 1.0), (1, 2.0)]
    """
    if len(points) <= MOST:
        return points
    size, kept = math.ceil(len(points) / (MOST // 4)), []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        finite = [point for point in part if not math.isnan(point[1])]
        ends = {min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])} if finite else set()
        gap = next(([point] for point in part if math.isnan(point[1])), [])
        kept += sorted([*ends, *gap], key=lambda p: p[0])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _find_ends(
    curves: dict[str, list[tuple[float, float]]], letters: dict[str, str], low: float, high: float, height: int
) -> list[str]:
    """For each line of the plot, the letters of the curves that end there."""
    ends = [""] * height
    for name, points in curves.items():
        last = next((y for _, y in reversed(points) if not math.isnan(y)), None)
        if last is not None:
            row = round((high - last) / (high - low) * (4 * height - 1)) // 4 if high > low else (4 * height - 1) // 8
            ends[row] += letters[name]
    return ends


def _say_broken(points: list[tuple[float, float]]) -> str:
    broken = sum(math.isnan(y) for _, y in points)
    return f" ({broken} not finite)" if broken else ""


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and (isinstance(value, Real) or getattr(value, "ndim", None) == 0)


def _read(value: Any) -> float:
    """A finite number, or NaN."""
    if not _is_number(value):
        # one number in brackets, as a loss of shape (1,)
        if getattr(value, "ndim", 0) and math.prod(value.shape) == 1:
            value = value.reshape(())
        else:
            return math.nan
    try:
        number = float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan
    return number if abs(number) < LARGEST else math.nan


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return running is not None and hasattr(running, "kernel")
