"""Which source token each target token attended to, as a heat map."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from regard.core import RegardError
from regard.views.fonts import choose_fonts
from regard.views.labels import measure, show_line, show_token, wrap
from regard.views.sheet import LARGEST, check_path, open_sheet, save_figure

# light to dark: read alike by every kind of eye, and in black and white
COLOURS = "Blues"
# not a number
NOTHING = "#c8c8c8"
# inches
LARGEST_CELL, SMALLEST_CELL, LARGEST_MAP, LEAST_MAP = 0.6, 0.2, 16.0, 1.2


def draw_alignment(
    weights: Tensor | npt.ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Draw the weights (targets, sources) of a translation as a picture: a row for every target token.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     picture = pathlib.Path(folder, "attention.png")
    ...     draw_alignment([[0.9, 0.1], [0.2, 0.8]], ["guten", "tag"], ["good", "day"], picture)
    ...     picture.read_bytes()[1:4]
    b'PNG'

    The path's ending picks the kind: .png, .svg or .pdf. Small maps carry their numbers; what is not finite is grey.
    Characters that no font on the machine has are named in a warning.
    """
    place = check_path(path)
    table = _read_weights(weights, len(target_tokens), len(source_tokens))
    sources, targets = (_read_tokens(x) for x in (source_tokens, target_tokens))
    with open_sheet() as paper:
        families = choose_fonts("".join([*sources, *targets, show_line(title or "")]))
        save_figure(_draw(paper, table, sources, targets, title, families), place)


def _read_tokens(tokens: Sequence[str]) -> list[str]:
    for token in tokens:
        if not isinstance(token, str):
            raise RegardError(f"tokens must be text, got {type(token).__name__}: decode the ids first.")
    return [show_token(token) for token in tokens]


def _read_weights(weights: Any, targets: int, sources: int) -> npt.NDArray[np.float64]:
    try:
        if isinstance(weights, Tensor):
            weights = weights.detach().double().cpu().numpy()
        table = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise RegardError("weights must be a table of numbers, a row for every target token.") from None
    if table.shape != (targets, sources):
        raise RegardError(
            f"weights must be (targets, sources) = ({targets}, {sources}), as there are tokens, got {table.shape}."
        )
    if not table.size:
        raise RegardError("weights must have a row and a column at least: there are no tokens to draw.")
    return table


def _draw(
    paper: Any, table: npt.NDArray[np.float64], sources: list[str], targets: list[str], title: str | None,
    families: list[str],
) -> Any:  # fmt: skip
    rows, columns = table.shape
    longest = max(rows, columns)
    # small maps are large to the eye; large ones stay on the sheet
    cell = LARGEST_MAP / longest if longest * SMALLEST_CELL > LARGEST_MAP else max(7 / longest, SMALLEST_CELL)
    cell = min(cell, LARGEST_CELL)
    width, height = max(columns * cell, LEAST_MAP), max(rows * cell, LEAST_MAP)
    figure = paper.Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    finite = np.abs(table) < LARGEST
    # under the mask, too, matplotlib computes
    shown = np.ma.masked_array(np.where(finite, table, 0.0), mask=~finite)
    low = min(float(shown.min()), 0.0) if shown.count() else 0.0
    high = float(shown.max()) if shown.count() and shown.max() > low else low + 1.0
    image = axes.imshow(shown, cmap=_pick_colours(), vmin=low, vmax=high, aspect="auto")
    size = min(12.0, max(7.0, 0.48 * cell * 72))
    _label(axes.xaxis, sources, width / columns * 72, size, families, turn=True)
    _label(axes.yaxis, targets, height / rows * 72, size, families)
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False, pad=5)
    axes.spines[:].set_visible(False)
    if longest <= 40:
        axes.set_xticks(np.arange(columns - 1) + 0.5, minor=True)
        axes.set_yticks(np.arange(rows - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="minor", length=0)
    if cell >= 0.5:
        _write_numbers(axes, image, shown)
    length = min(height, 4.0) / height
    bar = figure.colorbar(image, cax=figure.add_axes((1 + 0.2 / width, 1 - length, 0.14 / width, length)))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=8)
    bar.set_label("weight", size=9)
    axes.set_xlabel("source", size=9, labelpad=6)
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("target", size=9, labelpad=6)
    if title:
        room = max((width + 1.5) * 72 / 12, 20)
        axes.set_title(wrap(show_line(title), room), size=12, family=families, color="#222222", loc="left", pad=12)
    return figure


def _pick_colours() -> Any:
    import matplotlib

    return matplotlib.colormaps[COLOURS].with_extremes(bad=NOTHING)


def _label(axis: Any, labels: list[str], room: float, size: float, families: list[str], turn: bool = False) -> None:
    """Writes the tokens beside their cells of `room` points; where there are too many, every second, third, …"""
    step = math.ceil(size * 1.15 / room)
    places = range(0, len(labels), step)
    style: dict[str, Any] = {"size": size, "family": families}
    if turn and max(map(measure, labels)) * size > room * step * 1.1:
        steep = room * step < size * 1.8
        style |= (
            {"rotation": 90, "ha": "center", "va": "bottom"}
            if steep
            else {"rotation": 45, "ha": "left", "va": "baseline"}
        )
        style |= {"rotation_mode": "default" if steep else "anchor"}
    axis.set_ticks(list(places), [labels[place] for place in places], **style)


def _write_numbers(axes: Any, image: Any, shown: Any) -> None:
    for (row, column), value in np.ndenumerate(shown):
        if shown.mask[row, column]:
            axes.text(column, row, "–", ha="center", va="center", size=9, color="#444444")
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        colour = "white" if dark else "#222222" if abs(value) >= 0.005 else "#9aa5b1"
        # large numbers are no probabilities, and must fit
        text = f"{value:.2f}" if abs(value) < 10 else f"{value:.2g}"
        axes.text(column, row, text, ha="center", va="center", size=9, color=colour)
