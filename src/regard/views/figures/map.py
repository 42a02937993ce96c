"""The heat map of one head: all of its attention weights, each cell the mean of what it covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.engine.look import Look
from regard.views.figures.align import rule
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
from regard.views.figures.colours import cover, share_scale
from regard.views.reading import Table, Weights, check_title, read_look, read_map, read_tokens
from regard.views.sheet import open_sheet

# inches
LONG, SHORT, CELL = 6.0, 1.2, 0.5
# more tokens than this have numbers for labels
MOST_LABELS = 200


def map(
    look: Look | Weights, *, head: int = 0, sequence: int = 0, tokens: Sequence[str] | None = None,
    keys: Sequence[str] | None = None, log: bool = False, title: str | None = None, ax: Any = None,
) -> Any:  # fmt: skip
    """Draw a head's heat map: queries down, keys across, the mean weight of each cell as its colour.

    >>> import torch
    >>> from regard.engine.look import look
    >>> axes = map(look(torch.eye(2), 9 * torch.eye(2)), tokens=["good", "day"])
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['good', 'day']

    `look` may be plain weights: (queries, keys), (heads, queries, keys) or (batch, heads, queries, keys). `tokens` are
    the queries', and the keys' too where there are as many and no `keys`. `log` shows weights down to a
    ten-thousandth of the largest.
    """
    look = read_look(look, head, sequence)
    check_title(title)
    n, m = look.entropy.shape[-1], look.received.shape[-1]
    rows, columns = read_sides(tokens, keys, n, m)
    table = read_map(look, head, sequence)
    with open_sheet():
        check_axes(ax)
        axes = open_axes(ax, *size_map(n, m))
        scale = share_scale([table], log)
        families, (rows, columns, lines) = fit_texts(rows, columns, [title or ""])
        image = draw_map(axes, table, scale, look.block, (n, m))
        label_map(axes, rows, columns, families)
        add_bar(axes, image, "weight" if look.block == (1, 1) else "mean weight", ax is None)
        if title:
            write_title(axes, lines[0], measure_axes(axes)[0] + 1, families)
        if ax is None:
            fit(axes.figure)
    return axes


def read_sides(tokens: Sequence[str] | None, keys: Sequence[str] | None, n: int, m: int) -> tuple[list[str], list[str]]:
    """Token labels of queries and of keys, empty where there are none."""
    rows = read_tokens(tokens, n)
    columns = rows if keys is None and n == m else read_tokens(keys, m, "keys")
    return rows or [], columns or []


def size_map(n: int, m: int) -> tuple[float, float]:
    """The size in inches of a map: small ones large to the eye, thin ones not too thin."""
    longest = max(n, m)
    cell = min(CELL, LONG / longest)
    return max(m * cell, SHORT), max(n * cell, SHORT)


def draw_map(axes: Any, table: Table, scale: tuple[Any, Any], block: tuple[int, int], sizes: tuple[int, int]) -> Any:
    """Draw the cells as an image, at the places of tokens, though a cell be many of them."""
    (down, across), (n, m), (norm, colours) = block, sizes, scale
    rows, columns = table.shape
    extent = (-0.5, columns * across - 0.5, rows * down - 0.5, -0.5)
    image = axes.imshow(cover(table), cmap=colours, norm=norm, aspect="auto", interpolation="nearest", extent=extent)
    # the last cells may cover less
    axes.set_xlim(-0.5, m - 0.5)
    axes.set_ylim(n - 0.5, -0.5)
    return image


def label_map(axes: Any, rows: Sequence[str], columns: Sequence[str], families: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    width, height = measure_axes(axes)
    n, m = (int(abs(np.diff(limits)[0])) for limits in (axes.get_ylim(), axes.get_xlim()))
    clear_frame(axes)
    axes.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False, pad=4, labelsize=8)
    for axis, labels, room, turn in ((axes.xaxis, columns, width / m, True), (axes.yaxis, rows, height / n, False)):
        if labels and len(labels) <= MOST_LABELS:
            label_axis(axis, labels, room * 72, min(10.0, max(6.0, room * 72 * 0.6)), families, turn=turn)
        else:
            axis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    if max(n, m) <= 40:
        rule(axes, n, m)
    axes.set_xlabel("key", size=9, labelpad=5)
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("query", size=9, labelpad=5)
