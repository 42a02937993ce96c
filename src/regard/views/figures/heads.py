"""All heads of all layers at a glance, as small heat maps on one colour scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.figures.axes import INK, add_bar, check_axes, clear_frame, fit, fit_texts, measure_axes, open_axes
from regard.views.figures.colours import cover, share_scale
from regard.views.labels import show_line, wrap
from regard.views.reading import ORDERS, Table, count_heads, list_looks, read_look, read_map, score_head
from regard.views.sheet import open_sheet

# of a small map: its side on the grid, and in inches
SIDE, LEAST, MOST = 0.9, 0.45, 1.1
# rows of sorted maps are this far apart: a line of text fits in between
APART = 1.25
# cells a small map has at most: more are not seen
FINEST = 64


def heads(seen: Any, *, sort: str | None = None, sequence: int = 0, log: bool = False, ax: Any = None) -> Any:
    """Draw a small heat map of every head: a row for each layer, or in the order of `sort` with its number above each.

    >>> import torch
    >>> from regard.engine.look import look
    >>> axes = heads({"encoder.0": look(torch.rand(1, 2, 5, 4), torch.rand(1, 2, 5, 4))})
    >>> len(axes.images), axes.images[0].norm is axes.images[1].norm
    (2, True)

    `sort` is "entropy" (sharpest first), "local", "first" or "received" (most first). `seen` is what `watch` gave, a
    list of looks or one, or plain weights in their place: (queries, keys), with heads and batch before them.
    """
    looks = list_looks(seen)
    if sort is not None and (not isinstance(sort, str) or sort not in ORDERS):
        raise RegardError(f"sort must be entropy, local, first or received, got {str(sort)[:40]!r}.")
    for _, look in looks:
        read_look(look, 0, sequence)
    places = _list_places(looks, sort, sequence)
    tables = [_shrink(read_map(look, head, sequence)) for _, look, head, *_ in places]
    rows, columns = max(place[3] for place in places) + 1, max(place[4] for place in places) + 1
    with open_sheet():
        check_axes(ax)
        side = min(MOST, max(LEAST, 9 / columns))
        apart = APART if sort else 1.0
        side = max(side, 0.7) if sort else side
        axes = open_axes(ax, columns * side, rows * side * apart)
        norm, colours = share_scale(tables, log)
        names = [show_line(name) for name, _ in looks]
        families, (names,) = fit_texts([_shorten(name) for name in names])
        for (_, _, _, row, column, _), table in zip(places, tables, strict=True):
            extent = (column, column + SIDE, row * apart + SIDE, row * apart)
            axes.imshow(cover(table), cmap=colours, norm=norm, extent=extent, aspect="auto", interpolation="nearest")
        axes.set_xlim(0, columns - 1 + SIDE)
        axes.set_ylim((rows - 1) * apart + SIDE, 1 - apart)
        clear_frame(axes)
        if sort:
            axes.set_xticks([])
            axes.set_yticks([])
            _write_scores(axes, places, names, [name for name, _ in looks], families)
            axes.set_title(f"heads by {sort}", size=11, loc="left", pad=8)
        else:
            _label_grid(axes, places, names, families)
        whole = all(look.block == (1, 1) and max(look.map.shape[-2:]) <= FINEST for _, look in looks)
        add_bar(axes, axes.images[-1], "weight" if whole else "mean weight", ax is None)
        if ax is None:
            fit(axes.figure)
    return axes


Place = tuple[str, Look, int, int, int, float]


def _list_places(looks: list[tuple[str, Look]], sort: str | None, sequence: int) -> list[Place]:
    """Every head with its row and column, and what it was sorted by."""
    if sort is None:
        return [
            (name, look, head, row, head, 0.0)
            for row, (name, look) in enumerate(looks)
            for head in range(count_heads(look))
        ]
    found = [
        (score_head(look, head, sequence, sort), name, look, head)
        for name, look in looks
        for head in range(count_heads(look))
    ]
    # stable: equals stay in the order in which they ran; what is not a number comes last
    found.sort(key=lambda x: math.inf if math.isnan(x[0]) else ORDERS[sort] * x[0])
    across = math.ceil(math.sqrt(len(found) * 1.6))
    return [(name, look, head, k // across, k % across, score) for k, (score, name, look, head) in enumerate(found)]


def _shrink(table: Table) -> Table:
    """Downsample a map to at most `FINEST` cells a side: means of equal blocks, the last one of what is left."""
    for axis in (0, 1):
        size = table.shape[axis]
        if size > FINEST:
            starts = np.arange(0, size, math.ceil(size / FINEST))
            counts = np.diff([*starts, size])
            table = np.add.reduceat(table, starts, axis=axis) / (counts[:, None] if axis == 0 else counts)
    return table


def _shorten(name: str, longest: int = 36) -> str:
    return name if len(name) <= longest else "…" + name[1 - longest :]


def _label_grid(axes: Any, places: list[Place], names: list[str], families: list[str]) -> None:
    columns = max(place[4] for place in places) + 1
    axes.set_xticks(np.arange(columns) + SIDE / 2, [str(head) for head in range(columns)], size=8)
    axes.set_yticks(np.arange(len(names)) + SIDE / 2, names, size=8, family=families, parse_math=False)
    axes.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False, pad=3)
    axes.set_xlabel("head", size=9, labelpad=5)
    axes.xaxis.set_label_position("top")


def _write_scores(axes: Any, places: list[Place], names: list[str], keys: list[str], families: list[str]) -> None:
    room, _ = measure_axes(axes)
    for name, _, head, row, column, score in places:
        text = f"{keys.index(name)}.{head}  {score:.2f}"
        axes.text(column, row * APART - 0.03, text, size=6.5, va="bottom", ha="left", color=INK, parse_math=False)
    # the spaces within an entry hold it together on its line
    listed = wrap(" ".join(f"{number}\u00a0{name}\u00a0" for number, name in enumerate(names)), room * 72 / 7)
    axes.set_xlabel(listed, size=7, family=families, loc="left", labelpad=6, parse_math=False)
