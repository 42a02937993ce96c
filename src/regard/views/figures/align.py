"""The alignment heat map: which source token each target token attends to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.figures.axes import (
    add_bar,
    check_axes,
    clear_frame,
    fit,
    fit_texts,
    label_axis,
    measure_axes,
    open_axes,
    write_title,
)
from regard.views.figures.colours import cover, pick_ink, share_scale
from regard.views.labels import show_line
from regard.views.reading import Table, check_title, list_texts, read_look, read_table, read_tokens, to_numbers
from regard.views.sheet import open_sheet

# inches
LARGEST_CELL, SMALLEST_CELL, LARGEST_MAP, LEAST_MAP = 0.6, 0.2, 16.0, 1.2


def align(
    weights: Any, source: Sequence[str], target: Sequence[str], *, head: int = 0, sequence: int = 0,
    title: str | None = None, ax: Any = None,
) -> Any:  # fmt: skip
    """Draw an alignment: a heat map of the weights (targets, sources), or of a look, a row for every target token.

    >>> axes = align([[0.9, 0.1], [0.2, 0.8]], ["guten", "tag"], ["good", "day"])
    >>> axes.images[0].get_array().tolist()
    [[0.9, 0.1], [0.2, 0.8]]

    Small maps carry their numbers; what is not finite is grey. Of a look, 4,000,000 weights are drawn one by one at
    most; `map` draws more.
    """
    check_title(title)
    source, target = list_texts(source, "source"), list_texts(target, "target")
    if isinstance(weights, Look):
        weights = read_table(read_look(weights, head, sequence), head, sequence)
    table = read_weights(weights, len(target), len(source))
    sources, targets = (read_tokens(x, len(x)) or [] for x in (source, target))
    with open_sheet():
        check_axes(ax)
        return draw_cells(table, sources, targets, title, ax)


def read_weights(weights: Tensor | npt.ArrayLike, targets: int, sources: int) -> Table:
    try:
        table = to_numbers(weights)
    except (TypeError, ValueError, RuntimeError):
        raise RegardError("weights must be a table of numbers, a row for every target token.") from None
    if table.shape != (targets, sources):
        raise RegardError(
            f"weights must be (targets, sources) = ({targets}, {sources}), as there are tokens, got {table.shape}."
        )
    if not table.size:
        raise RegardError("weights must have a row and a column at least: there are no tokens to draw.")
    return table


def draw_cells(
    table: Table, sources: Sequence[str], targets: Sequence[str], title: str | None, ax: Any = None, make: Any = None
) -> Any:
    rows, columns = table.shape
    longest = max(rows, columns)
    # small maps are large to the eye; large ones stay on the sheet
    cell = LARGEST_MAP / longest if longest * SMALLEST_CELL > LARGEST_MAP else max(7 / longest, SMALLEST_CELL)
    cell = min(cell, LARGEST_CELL)
    axes = open_axes(ax, max(columns * cell, LEAST_MAP), max(rows * cell, LEAST_MAP), make)
    width, height = measure_axes(axes)
    families, (sources, targets, lines) = fit_texts(sources, targets, [show_line(title or "")])
    norm, colours = share_scale([table])
    image = axes.imshow(cover(table), cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
    size = min(12.0, max(7.0, 0.48 * cell * 72))
    label_axis(axes.xaxis, sources, width / columns * 72, size, families, turn=True)
    label_axis(axes.yaxis, targets, height / rows * 72, size, families)
    clear_frame(axes)
    axes.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False, pad=5)
    if longest <= 40:
        rule(axes, rows, columns)
    if min(width / columns, height / rows) >= 0.5:
        write_numbers(axes, image)
    add_bar(axes, image, "weight", ax is None)
    axes.set_xlabel("source", size=9, labelpad=6)
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("target", size=9, labelpad=6)
    if title:
        write_title(axes, lines[0], width + 1.5, families, size=12)
    # what is saved at once is cut out by then
    if ax is None and make is None:
        fit(axes.figure)
    return axes


def rule(axes: Any, rows: int, columns: int) -> None:
    """Draw white lines between the cells."""
    axes.set_xticks(np.arange(columns - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(rows - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5 if max(rows, columns) <= 20 else 0.5)
    axes.tick_params(which="minor", length=0)


def write_numbers(axes: Any, image: Any) -> None:
    shown = image.get_array()
    for (row, column), value in np.ndenumerate(shown):
        if shown.mask[row, column]:
            axes.text(column, row, "–", ha="center", va="center", size=9, color="#444444")
            continue
        # large numbers are no probabilities, and must fit
        text = f"{value:.2f}" if abs(value) < 10 else f"{value:.2g}"
        axes.text(column, row, text, ha="center", va="center", size=9, color=pick_ink(image.cmap(image.norm(value))))
