"""The heat maps of two heads side by side, and their difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.figures.axes import add_bar, check_axes, fit, fit_texts, open_figure, write_title
from regard.views.figures.colours import balance, share_scale
from regard.views.figures.map import draw_map, label_map, read_sides, size_map
from regard.views.reading import Table, Weights, read_look, read_map
from regard.views.sheet import LARGEST, open_sheet

# inches between panels: room for labels and for the bars
GAP, BARS = 0.3, 0.9
LONGEST = 3.6


def compare(
    one: Look | Weights, other: Look | Weights, *, head: int = 0, other_head: int | None = None, sequence: int = 0,
    tokens: Sequence[str] | None = None, keys: Sequence[str] | None = None, names: Sequence[str] = ("one", "other"),
    log: bool = False, ax: Any = None,
) -> Any:  # fmt: skip
    """Draw the heat maps of two heads in one scale, and the other less the one: orange where it is more.

    >>> import torch
    >>> from regard.engine.look import look
    >>> panels = compare(look(torch.eye(2), torch.eye(2)), look(torch.eye(2), torch.zeros(2, 2)))
    >>> panels[0].images[0].norm is panels[1].images[0].norm
    True

    Both must have as many queries and as many keys. The title has the mean over the queries of the Jensen–Shannon
    divergence of both rows, in nats (0: alike; 0.693: no key in common), of the map's cells where these are coarser.
    """
    other_head = head if other_head is None else other_head
    one, other = read_look(one, head, sequence), read_look(other, other_head, sequence)
    sizes = one.entropy.shape[-1], one.received.shape[-1]
    theirs = other.entropy.shape[-1], other.received.shape[-1]
    if sizes != theirs:
        raise RegardError(f"both looks must have as many queries and keys, got {sizes} and {theirs}.")
    if one.block != other.block:
        raise RegardError(f"both maps must have cells alike, got {one.block} and {other.block}: look with one map=.")
    pair = isinstance(names, tuple | list) and len(names) == 2
    if not pair or not all(isinstance(name, str) for name in names):
        raise RegardError("names must be two texts, one for each look.")
    rows, columns = read_sides(tokens, keys, *sizes)
    tables = read_map(one, head, sequence), read_map(other, other_head, sequence)
    with open_sheet():
        check_axes(ax, 3)
        panels = _open_panels(sizes, rows, columns) if ax is None else list(np.ravel(ax))
        titles = [f"{name}, head {number}" for name, number in zip(names, (head, other_head), strict=True)]
        cells = "" if one.block == (1, 1) else " (of cells)"
        titles.append(f"difference, JS divergence{cells} {diverge(*tables):.3f}")
        families, (rows, columns, titles) = fit_texts(rows, columns, titles)
        less = tables[1] - tables[0]
        finite = less[np.abs(less) < LARGEST]
        scale = share_scale(tables, log)
        scales = [scale, scale, balance(float(np.abs(finite).max()) if finite.size else 0.0)]
        images = [
            draw_map(axes, table, scale, one.block, sizes)
            for axes, table, scale in zip(panels, (*tables, less), scales, strict=True)
        ]
        for number, (axes, title) in enumerate(zip(panels, titles, strict=True)):
            label_map(axes, rows, columns, families)
            write_title(axes, title, 2.6, families, size=10)
            if number == 1:
                # the rows are the first panel's
                axes.set_yticklabels([])
                axes.set_ylabel("")
        weight = "weight" if one.block == (1, 1) else "mean weight"
        add_bar(panels[1], images[1], weight, ax is None, beside=[panels[0]])
        add_bar(panels[2], images[2], "difference", ax is None)
        if ax is None:
            fit(panels[0].figure)
    return np.array(panels)


def diverge(one: Table, other: Table) -> float:
    """The mean Jensen–Shannon divergence of rows, as shares, in nats.

    >>> round(diverge(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])), 4)
    0.6931
    """
    shares = [np.abs(table) / np.maximum(np.abs(table).sum(1, keepdims=True), 1e-300) for table in (one, other)]
    middle = (shares[0] + shares[1]) / 2
    # 0 log 0 is 0
    terms = [share * np.log(np.where(share > 0, share / np.where(middle > 0, middle, 1), 1)) for share in shares]
    return float(sum(term.sum(1) for term in terms).mean() / 2)


def _open_panels(sizes: tuple[int, int], rows: Sequence[str], columns: Sequence[str]) -> list[Any]:
    width, height = size_map(*sizes)
    shrink = min(1.0, LONGEST / max(width, height))
    width, height = max(width * shrink, 2.0), max(height * shrink, 1.2)
    # the difference stands apart by its neighbour's bar and its own labels
    lefts = [0.0, width + GAP, 2 * width + GAP + BARS + (0.75 if not rows else 0.35 + 0.08 * max(map(len, rows)))]
    across = lefts[-1] + width
    figure = open_figure((across, height))
    return [figure.add_axes((left / across, 0, width / across, 1)) for left in lefts]
