"""Axes of matplotlib, the caller's or new ones: their size, labels, titles and colour bars."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.core import RegardError
from regard.views.fonts import choose_fonts
from regard.views.labels import measure, show_line, wrap

INK, PALE = "#222222", "#888888"
# inches around a new picture
MARGIN = 0.12


def check_axes(ax: Any, count: int = 1) -> None:
    """Check that `ax` is None, or so many axes of matplotlib."""
    from matplotlib.axes import Axes

    if ax is None or (count == 1 and isinstance(ax, Axes)):
        return
    if count == 1:
        raise RegardError(f"ax must be one Axes of matplotlib, got {type(ax).__name__}: take it from plt.subplots().")
    several = list(np.ravel(ax)) if isinstance(ax, Sequence | np.ndarray) else [ax]
    if len(several) != count or not all(isinstance(x, Axes) for x in several):
        raise RegardError(f"ax must be {count} Axes of matplotlib, as plt.subplots(1, {count}) gives them.")


def open_axes(ax: Any, width: float, height: float, make: Any = None) -> Any:
    """The caller's axes, or those of a new figure, so many inches large."""
    return ax if ax is not None else (make or open_figure)(figsize=(width, height)).add_axes((0, 0, 1, 1))


def open_figure(figsize: tuple[float, float]) -> Any:
    """A figure of pyplot's, where that is in use and a notebook shows it; else one that nobody has to close."""
    shell = sys.modules.get("IPython")
    if "matplotlib.pyplot" in sys.modules or (shell is not None and shell.get_ipython() is not None):
        from matplotlib import pyplot

        return pyplot.figure(figsize=figsize)
    from matplotlib.figure import Figure

    return Figure(figsize=figsize)


def measure_axes(axes: Any) -> tuple[float, float]:
    """The width and height of axes in inches."""
    box = axes.get_window_extent()
    return box.width / axes.figure.dpi, box.height / axes.figure.dpi


def fit(figure: Any) -> None:
    """Fit a new figure to what is drawn on it (a tight layout); its axes keep their size."""
    box = figure.get_tightbbox()
    across, down = figure.get_size_inches()
    width, height = box.width + 2 * MARGIN, box.height + 2 * MARGIN
    for axes in figure.axes:
        left, bottom, wide, tall = axes.get_position(original=True).bounds
        axes.set_position(
            (
                (left * across - box.x0 + MARGIN) / width,
                (bottom * down - box.y0 + MARGIN) / height,
                wide * across / width,
                tall * down / height,
            )
        )
    figure.set_size_inches(width, height)


def add_bar(axes: Any, image: Any, label: str, is_new: bool, beside: Sequence[Any] = ()) -> Any:
    """Add one colour bar, right of the last of the axes that share it."""
    if is_new:
        left, bottom, wide, tall = axes.get_position(original=True).bounds
        across, down = axes.figure.get_size_inches()
        length = min(tall, 4.0 / down)
        place = (left + wide + 0.2 / across, bottom + tall - length, 0.14 / across, length)
        bar = axes.figure.colorbar(image, cax=axes.figure.add_axes(place))
    else:
        bar = axes.figure.colorbar(image, ax=[*beside, axes])
    bar.outline.set_visible(False)
    # a power would be a formula, which no text here is
    bar.ax.yaxis.set_major_formatter("{x:g}")
    bar.ax.tick_params(length=2, labelsize=8)
    bar.set_label(label, size=9)
    return bar


def write_title(axes: Any, text: str, room: float, families: Sequence[str], size: float = 11) -> None:
    """Set a title, wrapped to lines no wider than `room` inches."""
    lines = wrap(show_line(text), max(room * 72 / size, 20))
    axes.set_title(lines, size=size, family=list(families), color=INK, loc="left", pad=8, parse_math=False)


def fit_texts(*groups: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Fonts for these texts, and the texts with a box for each character that no font here has."""
    text = "".join("".join(group) for group in groups)
    families, missing = choose_fonts(text)
    boxes = {ord(c): "□" for c in missing}
    return families, [[item.translate(boxes) for item in group] for group in groups]


def label_axis(
    axis: Any, labels: Sequence[str], room: float, size: float, families: Sequence[str], turn: bool = False,
    top: bool = True,
) -> None:  # fmt: skip
    """Set tokens as tick labels of cells of `room` points; where there are too many, every second, third, …"""
    step = math.ceil(size * 1.15 / room)
    places = range(0, len(labels), step)
    style: dict[str, Any] = {"size": size, "family": list(families), "parse_math": False}
    if turn and max(map(measure, labels)) * size > room * step * 1.1:
        steep = room * step < size * 1.8
        side = "bottom" if top else "top"
        style |= (
            {"rotation": 90, "ha": "center", "va": side}
            if steep
            else {"rotation": 45, "ha": "left" if top else "right", "va": "baseline" if top else "top"}
        )
        style |= {"rotation_mode": "default" if steep else "anchor"}
    axis.set_ticks(list(places), [labels[place] for place in places], **style)


def clear_frame(axes: Any) -> None:
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
