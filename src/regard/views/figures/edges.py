"""Attention weights on the edges of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.core import RegardError
from regard.views.figures.axes import (
    INK,
    PALE,
    add_bar,
    check_axes,
    clear_frame,
    fit,
    fit_texts,
    open_axes,
    write_title,
)
from regard.views.figures.colours import share_scale
from regard.views.labels import measure, show_line
from regard.views.pairs import read_pairs
from regard.views.reading import Table, check_title, list_texts, read_tokens, to_numbers
from regard.views.sheet import open_sheet

# more edges than this are a blot: the strongest are drawn
MOST = 2000
# nodes that a circle has, where neither labels nor positions say how many there are
MOST_NODES = 10_000
# points: of a line at the top of the scale, and at its bottom; of many edges, all are thinner
THICK, THIN, MANY = 4.0, 0.3, 100
# self-loops that the title names at most
LISTED = 6


def edges(
    weights: Any, pairs: Any, positions: Any = None, *, labels: Sequence[str] | None = None, title: str | None = None,
    ax: Any = None,
) -> Any:  # fmt: skip
    """Draw a graph, the weight of each edge as its width and colour; arrows point from the first node to the second.

    >>> axes = edges([0.7, 0.3, 1.0], [(0, 1), (2, 1), (2, 2)])
    >>> axes.get_title(loc="left")
    'self-loops: 2 1.00'

    `pairs` is a list of pairs, or a tensor or an array (2, edges), from and to; `positions` is (nodes, 2), a circle
    without them. Edges of a node with itself are small rings, and listed. Of more than 2,000 edges, the strongest are
    drawn, and the title says so.
    """
    values, ends = _read_edges(weights, pairs)
    labels = None if labels is None else list_texts(labels, "labels")
    places = _read_positions(positions, int(ends.max()), labels)
    read_tokens(labels, len(places), "labels")
    # names, not tokens: their spaces need no sign
    names = [show_line(name) for name in labels or map(str, range(len(places)))]
    loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
    order = np.argsort(np.abs(values), kind="stable")[-MOST:]
    check_title(title)
    notes = [title] if title else []
    if len(values) > MOST:
        notes.append(f"the {MOST:,} strongest of {len(values):,} edges")
    if len(loops):
        loops = loops[np.argsort(-np.abs(values[loops]), kind="stable")]
        listed = ", ".join(f"{names[ends[loop, 0]]} {values[loop]:.2f}" for loop in loops[:LISTED])
        rest = f" and {len(loops) - LISTED} more" if len(loops) > LISTED else ""
        notes.append(f"self-loops: {listed}{rest}")
    with open_sheet():
        check_axes(ax)
        axes = open_axes(ax, 5.0, 5.0)
        families, (names, notes) = fit_texts(names, notes)
        norm, colours = share_scale([values], on_white=True)
        _draw_edges(axes, values[order], ends[order], places, norm, colours)
        _draw_nodes(axes, places, names, families, {*ends[loops, 0].tolist()})
        from matplotlib.cm import ScalarMappable

        add_bar(axes, ScalarMappable(norm, colours), "weight", ax is None)
        if notes:
            write_title(axes, "; ".join(notes), 5.5, families, size=9)
        if ax is None:
            fit(axes.figure)
    return axes


def _read_edges(weights: Any, pairs: Any) -> tuple[Table, Any]:
    ends = read_pairs(pairs, "pairs")
    try:
        values = to_numbers(weights)
    except (TypeError, ValueError, RuntimeError):
        raise RegardError("weights must be a list of numbers, one for each edge.") from None
    if not len(ends):
        raise RegardError("pairs must have an edge at least: there is nothing to draw.")
    if values.shape != (len(ends),):
        raise RegardError(f"weights must be one number for each of the {len(ends)} edges, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise RegardError("weights must be finite: an edge has no width otherwise.")
    return values, ends


def _read_positions(positions: Any, last: int, labels: Sequence[str] | None) -> Table:
    count = max(last + 1, len(labels or ()))
    read_tokens(labels, count, "labels")
    if positions is None:
        if labels is None and count > MOST_NODES:
            raise RegardError(
                f"pairs name node {last}: a circle has room for {MOST_NODES}, so give labels or positions."
            )
        # from the top, with the clock
        turn = np.pi / 2 - 2 * np.pi * np.arange(count) / count
        return np.stack((np.cos(turn), np.sin(turn)), 1)
    try:
        places = to_numbers(positions)
    except (TypeError, ValueError, RuntimeError):
        raise RegardError("positions must be numbers, two for each node.") from None
    if places.ndim != 2 or places.shape[1] != 2 or len(places) < count or not np.isfinite(places).all():
        raise RegardError(f"positions must be finite and ({count}, 2), a place for each node, got {places.shape}.")
    # into a square as large as the circle's, so that arrows and rings are
    middle, reach = (places.max(0) + places.min(0)) / 2, float(np.ptp(places, axis=0).max()) / 2
    placed: Table = (places - middle) / (reach or 1.0)
    return placed


def _draw_edges(axes: Any, values: Table, ends: Any, places: Table, norm: Any, colours: Any) -> None:
    """The weakest first, so that the strongest lie on top."""
    from matplotlib.patches import Circle, FancyArrowPatch

    top = float(np.abs(values).max()) or 1.0
    thick = max(0.5, THICK * min(1.0, (MANY / len(values)) ** 0.5))
    there = {tuple(pair) for pair in ends.tolist()}
    middle = places.mean(0)
    for value, (start, stop) in zip(values.tolist(), ends.tolist(), strict=True):
        colour, width = colours(norm(value)), THIN + (thick - THIN) * abs(value) / top
        if start == stop:
            # outwards of all others
            way = places[start] - middle
            way = way / (np.hypot(*way) or 1.0)
            ring = Circle(places[start] + 0.09 * way, 0.08, fill=False, edgecolor=colour, linewidth=width)
            axes.add_patch(ring)
            continue
        # two that go both ways pass each other
        bend = 0.12 if (stop, start) in there else 0.0
        arrow = FancyArrowPatch(
            places[start], places[stop], arrowstyle="-|>", mutation_scale=4 + 2.5 * width, linewidth=width,
            color=colour, shrinkA=8, shrinkB=9, connectionstyle=f"arc3,rad={bend}", joinstyle="miter",
        )  # fmt: skip
        axes.add_patch(arrow)


def _draw_nodes(axes: Any, places: Table, names: Sequence[str], families: Sequence[str], ringed: set[int]) -> None:
    few = len(places) <= 80
    axes.plot(places[:, 0], places[:, 1], "o", color="white", markeredgecolor=PALE, markersize=15 if few else 3)
    middle = places.mean(0)
    for node, (place, name) in enumerate(zip(places, names, strict=True) if few else ()):
        if measure(name) <= 1.3:
            where: dict[str, Any] = {"xytext": (0, 0), "ha": "center", "va": "center"}
        else:
            # beside the node, away from the others
            right = place[0] >= middle[0] - 1e-9
            away = 26 if node in ringed else 11
            where = {"xytext": (away if right else -away, 0), "ha": "left" if right else "right", "va": "center"}
        axes.annotate(
            name, place, textcoords="offset points", size=9, color=INK, family=list(families), parse_math=False, **where
        )
    axes.set_xlim(-1.25, 1.25)
    axes.set_ylim(-1.25, 1.25)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    clear_frame(axes)
