"""Attention weights in the terminal: a sentence with its weights, or a table of heads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.labels import show_line
from regard.views.reading import Table, count_heads, list_looks, read_look, read_row, read_tokens, score_head, take

# matplotlib's cividis at nine places, for those who have no matplotlib
SHADES = ("#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838")
# of the table of heads: means over the queries, the last aside
COLUMNS = ("head", "entropy", "peak", "first", "local", "distance", "received")
# of longer texts, the strongest tokens and their neighbours are shown
MOST, STRONGEST, AROUND = 400, 40, 2


def show(
    look: Any, tokens: Sequence[str] | None = None, *, query: int | None = None, head: int = 0, sequence: int = 0,
    queries: Sequence[str] | None = None, console: Any = None,
) -> None:  # fmt: skip
    """Print a sentence with the weight of each token under it: one query's, or what each key received of all.

    >>> import torch
    >>> from regard.engine.look import look
    >>> show(look(torch.eye(2), 3 * torch.eye(2)), ["good", "day"], query=0)
    what query 0 good attends to, head 0
    good day
    .89  .11

    Without tokens, a table of heads: of this look, of a list, or of all that `watch` saw. In a terminal the tokens are
    shaded as well. `tokens` are the keys', and the queries' too where there are as many and no `queries`. Plain weights
    will do in place of a look: (queries, keys), with heads and batch before them.
    """
    check_console(console)
    console = console if console is not None else _open_console()
    if tokens is None:
        console.print(_list_heads(list_looks(look), sequence, console.width))
        return
    look = read_look(look, head, sequence)
    labels = read_tokens(tokens, look.received.shape[-1]) or []
    if query is None:
        weights, what = take(look, "received", head, sequence), "what each token received"
    else:
        weights, kind = read_row(look, query, head, sequence)
        n = look.entropy.shape[-1]
        names = labels if queries is None and len(labels) == n else read_tokens(queries, n, "queries")
        name = f" {names[query]}" if names else ""
        what = f"what query {query}{name} attends to" + (f" ({kind} keys only)" if kind != "exact" else "")
    from rich.text import Text

    console.print(Text(f"{what}, head {head}"))
    for line in _set(labels, weights, max(console.width, 8)):
        console.print(line, no_wrap=True, overflow="crop", crop=False)


def check_console(console: Any) -> None:
    """Check that `console` is None, or prints as rich does."""
    if console is not None and not (callable(getattr(console, "print", None)) and hasattr(console, "width")):
        raise RegardError(f"console must be a Console of rich, got {type(console).__name__}.")


def _open_console() -> Any:
    try:
        from rich.console import Console
    except ImportError:
        raise RegardError("The terminal view needs the package rich: pip install rich.") from None
    return Console(highlight=False, markup=False)


def _set(labels: list[str], weights: Table, width: int) -> Iterator[Any]:
    """Pairs of lines, tokens and their numbers below them, no wider than the terminal."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    top = float(np.nanmax(np.abs(weights))) if np.isfinite(weights).any() else 0.0
    above, below, used = Text(), Text(), 0
    for label, weight, is_gap in _choose(labels, weights):
        if cell_len(label) > width - 1:
            label = set_cell_size(label, width - 2).rstrip() + "…"
        number = format_weight(weight)
        wide = max(cell_len(label), cell_len(number)) + 1
        if used and used + wide > width + 1:
            yield from (_trim(above), _trim(below))
            above, below, used = Text(), Text(), 0
        share = abs(weight) / top if top and math.isfinite(weight) else 0.0
        above.append(label, style="" if is_gap or share < 0.02 else shade(share))
        above.append(" " * (wide - cell_len(label)))
        below.append(number.ljust(wide), style="dim")
        used += wide
    yield from (_trim(above), _trim(below))


def _trim(line: Any) -> Any:
    line.rstrip()
    return line


def _choose(labels: list[str], weights: Table) -> Iterator[tuple[str, float, bool]]:
    """Every token with its weight; of a long text the strongest with their neighbours, and what lies between in one."""
    if len(labels) <= MOST:
        yield from zip(labels, weights.tolist(), itertools.repeat(False))
        return
    size = np.abs(np.nan_to_num(weights))
    strongest = np.argsort(-size, kind="stable")[:STRONGEST]
    near = strongest[size[strongest] > 0][:, None] + np.arange(-AROUND, AROUND + 1)
    kept = np.zeros(len(labels), dtype=bool)
    kept[near.clip(0, len(labels) - 1)] = True
    for is_kept, run in itertools.groupby(range(len(labels)), key=lambda place: bool(kept[place])):
        places = list(run)
        # a gap of two is no shorter than they are
        if is_kept or len(places) <= 2:
            yield from ((labels[place], float(weights[place]), False) for place in places)
        else:
            yield f"…{len(places)} more…", float(weights[places].sum()), True


def format_weight(weight: float) -> str:
    """A weight in about four characters.

    >>> [format_weight(x) for x in (0.4321, 0.0098, 0.003, 0.0, 1.0, 12.34, -0.5, float("nan"))]
    ['.43', '.01', '.003', '0', '1', '12', '-.50', 'nan']
    """
    if not math.isfinite(weight):
        return str(weight)
    if abs(weight) < 0.0005:
        return "0"
    if abs(weight) >= 0.995:
        text = f"{weight:.1f}" if abs(weight) < 9.95 else f"{weight:.0f}" if abs(weight) < 9999 else f"{weight:.0e}"
        return text.removesuffix(".0")
    return f"{weight:.{2 if abs(weight) >= 0.0095 else 3}f}".replace("0.", ".", 1)


def shade(share: float) -> str:
    """The style of a token by its share of the largest weight: its background, and a text colour that is read on it.

    >>> shade(0.0), shade(1.0)
    ('white on #00224e', 'black on #fee838')
    """
    step = min(round(share * (len(SHADES) - 1)), len(SHADES) - 1)
    return f"{'black' if step >= 5 else 'white'} on {SHADES[step]}"


def _list_heads(looks: list[tuple[str, Look]], sequence: int, width: int) -> Any:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    shown = list(COLUMNS)
    # the names need some room, too
    while len(shown) > 2 and sum(len(column) + 2 for column in shown) + 14 > width:
        shown.pop()
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
    grid.add_column("attention", overflow="fold")
    for column in shown:
        grid.add_column(column, justify="right", no_wrap=True)
    if len(shown) < len(COLUMNS):
        grid.caption = f"too narrow for {', '.join(COLUMNS[len(shown) :])}"
    for name, look in looks:
        read_look(look, 0, sequence)
        for head in range(count_heads(look)):
            facts = {"head": str(head)}
            facts |= {field: f"{take(look, field, head, sequence).mean():.2f}" for field in COLUMNS[1:-1]}
            # of all that was given, what the most regarded key has
            facts["received"] = f"{score_head(look, head, sequence, 'received'):.2f}"
            grid.add_row(Text(show_line(name) if head == 0 else ""), *(facts[column] for column in shown))
    return grid
