"""Paths: which outputs depend on which inputs, and how many layers or steps lie from the first token to the last.

Read off running layers: an input is NaN, and what depends on it becomes NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import torch
from torch import Tensor, nn

from regard.compare.kinds import KINDS, Kind
from regard.compare.meters.sight import draw_rows, find_dependence
from regard.compare.meters.sizes import Lengths, build, count_sizes
from regard.compare.part import Column, Part
from regard.compare.report.cells import NOTHING, name_kind, show_list
from regard.compare.report.figures import Sheet, look_up, size_mark
from regard.compare.rows import Numbers, choose_sizes, group, take
from regard.compare.settings import Advance, Dimensions, Settings
from regard.core import RegardError

# two tokens, and lengths that no kernel and no window divides; one token alone has no path to speak of
LENGTHS: Lengths = {True: (2, 8, 33), False: (2, 8, 33, 50, 101)}
# of the pictures: tokens, and how many layers at most
SHOWN, DEPTHS = 24, (1, 2, 4)
# of lines, by the kernel
STYLES = ("-", (0, (5, 2)), (0, (1, 1.6)))


@torch.no_grad()
def find_path(kind: Kind, dims: Dimensions, n: int) -> int | None:
    """How many layers, of a recurrence steps, are run until the last of n tokens depends on the first.

    >>> find_path(KINDS["conv"], Dimensions(width=8, kernel=5), 9)
    4

    None: it never does.
    """
    rows = draw_rows(build(kind, dims).double(), n, dims.width, torch.float64, "cpu")
    if kind.is_recurrent:
        layer = build(kind, dims).double()
        if not hasattr(layer, "walk"):
            raise RegardError(
                f"kind {kind.name!r} is recurrent: its layer needs walk(rows), the state after each step."
            )
        first, last = (_list_reached(layer, rows, token) for token in (0, -1))
        # from the step that reads the first token to the one that reads the last, if its state still knows of the first
        end = last.index(True) if True in last else None
        return end - first.index(True) + 1 if end is not None and first[end] else None
    rows[:, 0] = float("nan")
    reached, seen = b"", set[bytes]()
    # where it has been before it will go in circles
    while reached not in seen:
        seen.add(reached)
        rows = build(kind, dims).double()(rows).tanh()
        reached = bytes(rows[0].isnan().any(-1).tolist())
        if reached[-1]:
            return len(seen)
    return None


def _list_reached(layer: nn.Module, rows: Tensor, token: int) -> list[bool]:
    """Whether NaN in a token has come to the state after each step."""
    poisoned = rows.clone()
    poisoned[:, token] = float("nan")
    return [bool(state.isnan().any()) for state in layer.walk(poisoned)]  # type: ignore[operator]


def measure_paths(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Lengths of paths over lengths of sequences, widths and kernels; and maps of what sees what, for pictures.

    Always on the CPU: what depends on what is the same everywhere.
    """
    rows, maps = list[dict[str, Any]](), list[dict[str, Any]]()
    for kind, mine, _ in count_sizes(settings, kinds, advance, _count, LENGTHS):
        rows += mine
        maps += map_sight(kind, settings.dims)
    return {"rows": rows, "maps": maps}


def _count(kind: Kind, dims: Dimensions, n: int) -> dict[str, Any]:
    return {"length": find_path(kind, dims, n), "formula": kind.path(dims, n)}


def map_sight(kind: Kind, dims: Dimensions) -> list[dict[str, Any]]:
    """What sees what after one layer, two and four, until more of them change nothing.

    >>> [found] = map_sight(KINDS["rnn"], Dimensions(width=8))
    >>> found["seen"][0], found["seen"][-1]
    ('100000000000000000000000', '111111111111111111111111')

    A window is no wider than a third of the picture.
    """
    # what depends on what is the same for a narrow layer as for a wide one, and for one head as for many
    dims = replace(dims, width=2, heads=1, window=min(dims.window, SHOWN // 3))
    maps: list[dict[str, Any]] = []
    for layers in DEPTHS:
        stack = (part for _ in range(layers) for part in (build(kind, dims).double(), nn.Tanh()))
        found = find_dependence(nn.Sequential(*stack), SHOWN, dims.width)
        seen = ["".join(map(str, row)) for row in found.int().tolist()]
        if maps and maps[-1]["seen"] == seen:
            break
        maps.append({"kind": kind.name, "layers": layers, "seen": seen})
    return maps


# --- what is told of it -----------------------------------------------------------------------------------------------


def list_columns(part: Numbers) -> Iterator[Column]:
    """How many paths are exactly as long as the formula says."""
    cells = {}
    for kind, rows in group(part["rows"], "kind").items():
        right = sum(row["length"] == row["formula"] for row in rows)
        book = f"O({KINDS[kind].textbook[2]})\n{KINDS[kind].path_text}" if kind in KINDS else f"{NOTHING}\nformula"
        cells[kind] = f"{book}: {right} of {len(rows)}"
    yield Column("longest path", cells, clause=", and how many paths are exactly as long as that")


def read_paths(part: Numbers, settings: Numbers) -> Iterator[str]:
    """Whether paths are as long as the formulas say, and how long the longest are."""
    rows = part["rows"]
    wrong = [row for row in rows if row["length"] != row["formula"]]
    yield "How many layers, of a recurrence how many steps, until the last output depends on the first input; read off"
    yield "the boolean Jacobian of the running stack."
    first = ""
    for row in wrong[:1]:
        kernel = "" if row["k"] is None else f", k = {row['k']}"
        found = "none" if row["length"] is None else row["length"]
        first = f"; {name_kind(row['kind'])} at n = {row['n']}{kernel} is not: {found}, not {row['formula']}"
    yield f"{len(rows) - len(wrong)} of {len(rows)} lengths are exactly the formula's{first}."
    chosen = choose_sizes(rows, settings)
    n = max((row["n"] for row in chosen), default=0)
    if at := [row for row in take(chosen, n=n) if row["length"] is not None]:
        k = next((f" and k = {row['k']}" for row in at if row["k"] is not None), "")
        said = show_list(f"{row['length']} for {name_kind(row['kind'])}" for row in at)
        yield f"At n = {n}{k}: {said}."


def draw_paths(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """Layers, or steps of a recurrence, until the last output depends on the first input, against the number of tokens.
    Points are measured, lines are the formulas; dashes are larger kernels.
    """
    from matplotlib.lines import Line2D

    axes = sheet.begin(7.2, 4.2)[0, 0]
    widths = {row["d"] for row in choose_sizes(part["rows"], settings)}
    rows = [row for row in part["rows"] if row["d"] in widths]
    for place, (kind, own) in enumerate(group(rows, "kind").items()):
        kernels = sorted({row["k"] for row in own}, key=lambda k: k or 0)
        for number, (k, dashes) in enumerate(zip(kernels, cycle(STYLES))):
            here = take(own, k=k)
            x = [row["n"] for row in here]
            sheet.plot_law(axes, kind, x, [row["formula"] for row in here], dashes)
            # what is never reached is a gap
            y = [float("nan") if row["length"] is None else row["length"] for row in here]
            label = name_kind(kind) + (f", k = {k}" if k is not None else "")
            mark: dict[str, Any] = {"linestyle": "none", "markersize": size_mark(place + number), "zorder": 3 + place}
            points = sheet.plot(axes, kind, x, y, label, **mark)
            # points and formula are two lines, and one entry of the legend
            entry = sheet.lines[points.get_label()] = Line2D([], [])
            entry.update_from(points)
            entry.set(label=points.get_label(), linestyle=dashes, linewidth=1.5)
    sheet.name(axes, "until the last output depends on the first input", "n, tokens", "layers, or steps")
    sheet.scale(axes, [row["n"] for row in rows], "{:g}".format)
    sheet.explain(columns=4)


def draw_maps(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """Which of 24 outputs, down, depend on which inputs, across, after some layers: coloured where one does. What more
    layers do not change is drawn once; a window is drawn no wider than 8.
    """
    from matplotlib.colors import ListedColormap

    maps, theme = part["maps"], sheet.theme
    kinds, depths = list(group(maps, "kind")), sorted({one["layers"] for one in maps})
    panels = sheet.begin(1.75, 1.85, down=max(len(depths), 1), across=max(len(kinds), 1))
    if not maps:
        sheet.leave_empty(panels[0, 0])
    for axes, (layers, kind) in zip(panels.flat, product(depths, kinds), strict=False):
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[["top", "right"]].set_visible(True)
        axes.spines[:].set_color(theme.line)
        found = take(maps, kind=kind, layers=layers)
        if not found:
            axes.set_visible(False)
            continue
        seen = [[int(mark) for mark in line] for line in found[0]["seen"]]
        # what is not seen is the paper, whichever it is
        colours = ListedColormap([(0, 0, 0, 0), look_up(kind)[0]])
        axes.imshow(seen, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        if layers == depths[0]:
            sheet.name(axes, name_kind(kind))
            axes.title.set_fontsize(9)
        if kind == kinds[0]:
            axes.set_ylabel(f"{layers} layer{'s' if layers != 1 else ''}", size=9, color=theme.quiet)


PATHS = Part(
    "paths", title="Longest path", counts="longest paths", share=2, quick_share=3,
    measure=measure_paths,
    lists={"rows": "kind d# k? n# length? formula#", "maps": "kind layers# seen"},
    columns=list_columns,
    read=read_paths,
    pictures=(draw_paths, draw_maps),
)  # fmt: skip
