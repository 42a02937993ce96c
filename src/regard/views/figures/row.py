"""The attention weights of one query, as a bar chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.engine.look import Look
from regard.views.figures.axes import check_axes, fit, fit_texts, label_axis, measure_axes, open_axes, write_title
from regard.views.reading import Weights, check_title, read_look, read_row, read_tokens
from regard.views.sheet import LARGEST, open_sheet

BAR, WEAK = "#31487a", "#8a94a8"
# bars that are labelled each; of more, the largest are named
FEW, NAMED = 60, 6
# inches
HIGH, LEAST, MOST = 2.2, 2.5, 9.0


def row(
    look: Look | Weights, query: int, *, head: int = 0, sequence: int = 0, tokens: Sequence[str] | None = None,
    keys: Sequence[str] | None = None, title: str | None = None, ax: Any = None,
) -> Any:  # fmt: skip
    """Draw one query's weights over the keys, a bar each.

    >>> import torch
    >>> from regard.engine.look import look
    >>> axes = row(look(torch.eye(2), 9 * torch.eye(2)), 1, tokens=["good", "day"])
    >>> axes.get_title(loc="left")
    'query 1 day, head 0'

    Exact where the look has the row: chosen by `rows`, kept by `keep`, or of a map with a cell for each weight; else of
    the top keys, and the title says so. `look` may be plain weights, as for `map`. `tokens` are the queries', and the
    keys' too where there are as many.
    """
    look = read_look(look, head, sequence)
    weights, kind = read_row(look, query, head, sequence)
    n, m = look.entropy.shape[-1], look.received.shape[-1]
    labels = read_tokens(tokens, n)
    columns = labels if keys is None and n == m else read_tokens(keys, m, "keys")
    check_title(title)
    title = title or f"query {query}{f' {labels[query]}' if labels else ''}, head {head}"
    if kind != "exact":
        title += f" ({kind} keys only, {weights.sum():.0%} of the weight)" if weights.sum() else f" ({kind} keys only)"
    with open_sheet():
        check_axes(ax)
        axes = open_axes(ax, min(MOST, max(LEAST, m * 0.4)), HIGH)
        families, (shown, lines) = fit_texts(columns or [], [title])
        width, _ = measure_axes(axes)
        if m <= FEW:
            axes.bar(np.arange(m), weights, width=0.8, color=BAR)
        else:
            # bars thinner than a pixel would vanish
            axes.vlines(np.arange(m), 0, weights, color=BAR, linewidth=max(0.7, 0.8 * width * 72 / m))
        axes.set_xlim(-0.6, m - 0.4)
        _label(axes, weights, shown, families, width)
        axes.set_ylabel("weight", size=9)
        axes.set_xlabel("key", size=9)
        write_title(axes, lines[0], max(width, 3.0), families)
        if ax is None:
            fit(axes.figure)
    return axes


def _label(axes: Any, weights: Any, labels: list[str], families: list[str], width: float) -> None:
    from matplotlib.ticker import MaxNLocator

    m = len(weights)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=2, labelsize=8)
    finite = weights[np.abs(weights) < LARGEST]
    low, high = (float(pick(finite, initial=0.0)) for pick in (np.min, np.max))
    axes.set_ylim(low * 1.1, high * 1.12 if high > low else 1.0)
    if m <= FEW and labels:
        label_axis(axes.xaxis, labels, width / m * 72, 10 if m <= 30 else 8, families, turn=True, top=False)
        axes.tick_params(axis="x", length=0)
        return
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    # named from the largest down, where no other name stands in the way
    taken: list[float] = []
    for place in np.argsort(-np.abs(weights))[: 4 * NAMED].tolist():
        if len(taken) == NAMED or not weights[place] or not labels:
            break
        if all(abs(place - other) > m * 0.09 for other in taken):
            taken.append(place)
            side = "left" if place < m * 0.05 else "right" if place > m * 0.95 else "center"
            axes.annotate(
                labels[place], (place, weights[place]), (0, 2), textcoords="offset points", ha=side, va="bottom",
                size=8, family=families, parse_math=False,
            )  # fmt: skip
