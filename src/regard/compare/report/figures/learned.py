"""Pictures of what is learned: by distance, by order, by how many images there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.compare.report.cells import average, list_kinds, name_kind, take, take_reached
from regard.compare.report.figures.style import (
    Theme,
    begin,
    explain,
    leave_empty,
    look_up,
    name_axes,
    plot_kind,
    rule,
    scale_lengths,
)  # fmt: skip

Part = Mapping[str, Any]
ACROSS = 3


def draw_recall(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """Accuracy against distance, a panel for each kind: with positions and without, chance, and how far it reaches."""
    kinds = list_kinds(part["rows"])
    across = min(max(len(kinds), 1), ACROSS)
    figure, panels = begin(paper, theme, max(-(-len(kinds) // across), 1), across, (3.6, 2.7))
    distances = [row["distance"] for row in part["rows"]]
    for axes, kind in zip(panels.flat, kinds, strict=False):
        name_axes(axes, theme, name_kind(kind), "distance", "recalled, %")
        for has_position in (False, True):
            own = take(part["rows"], kind=kind, has_position=has_position)
            x = sorted({row["distance"] for row in own})
            how = {} if has_position else {"linestyle": (0, (1, 1.5)), "markersize": 8, "markerfacecolor": theme.paper}
            edge = look_up(kind)[0]
            label = f"_{kind} {'with' if has_position else 'without'} positions"
            plot_kind(axes, theme, kind, x, _average(own, "distance", x), label, markeredgecolor=edge, **how)
        reach = part["reach"].get(kind)
        # what reaches nothing has no place on an axis of distances
        if reach and distances and reach <= max(distances):
            axes.axvline(reach, color=theme.ink, linestyle=(0, (4, 3)), linewidth=1.2, label="_reach", zorder=1)
            _note(axes, theme, f"reach {reach}", (reach, 0.4), axes.get_xaxis_transform(), side="right")
        _finish(axes, theme, part["chance"], distances)
    for axes in panels.flat[len(kinds) :]:
        axes.set_visible(False)
    return figure


def _note(axes: Any, theme: Theme, text: str, place: tuple[float, float], transform: Any, side: str = "left") -> None:
    axes.annotate(
        text, place, xycoords=transform, xytext=(4 if side == "left" else -4, 3), textcoords="offset points",
        fontsize=8, color=theme.quiet, ha=side,
    )  # fmt: skip


def _average(rows: Sequence[Part], axis: str, values: Sequence[int]) -> list[float]:
    """Percent right at each value of the axis; NaN where nothing was asked."""
    shares = [average(take(rows, **{axis: value})) for value in values]
    return [float("nan") if share is None else 100 * share for share in shares]


def _finish(axes: Any, theme: Theme, chance: float | None, values: Sequence[int]) -> None:
    axes.set_ylim(-2, 104)
    rule(axes, theme)
    if chance is not None:
        axes.axhline(100 * chance, color=theme.quiet, linestyle=(0, (1, 2)), linewidth=1.2, label="_chance", zorder=1)
        _note(axes, theme, "chance", (0, 100 * chance), axes.get_yaxis_transform())
    if values:
        scale_lengths(axes, values)
    else:
        leave_empty(axes, theme)


def draw_order(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """Accuracy of each kind as two bars: with positions filled, without them an outline."""
    kinds = list_kinds(part["rows"])
    figure, panels = begin(paper, theme, 1, 1, (7.2, 3.6))
    axes = panels[0, 0]
    name_axes(axes, theme, "a b c or c b a: filled with positions, outlined without", "", "right, %")
    for number, kind in enumerate(kinds):
        for side, has_position in ((-0.19, True), (0.19, False)):
            share = average(take_reached(part, kind=kind, has_position=has_position))
            if share is None:
                continue
            colour, _ = look_up(kind)
            fill = colour if has_position else theme.paper
            axes.bar(number + side, 100 * share, width=0.34, facecolor=fill, edgecolor=colour, linewidth=1.6)
            axes.annotate(
                f"{100 * share:.0f}", (number + side, 100 * share), xytext=(0, 2), textcoords="offset points",
                ha="center", fontsize=8, color=theme.ink,
            )  # fmt: skip
    axes.set_xticks(range(len(kinds)), [name_kind(kind).replace(" ", "\n", 1) for kind in kinds])
    axes.set_ylim(0, 112)
    axes.set_yticks(range(0, 101, 25))
    axes.axhline(100 * part["chance"], color=theme.quiet, linestyle=(0, (1, 2)), linewidth=1.4, label="_chance")
    axes.annotate(
        "chance", (1, 100 * part["chance"]), xycoords=axes.get_yaxis_transform(), xytext=(2, 0), fontsize=8,
        textcoords="offset points", va="center", color=theme.quiet, annotation_clip=False,
    )  # fmt: skip
    if not kinds:
        leave_empty(axes, theme)
    return figure


def draw_digits(paper: Any, part: Part, settings: Part, theme: Theme) -> Any:
    """Accuracy against images to learn from: mean over seeds, shaded from the worst to the best."""
    rows = part["rows"]
    figure, panels = begin(paper, theme, 1, 1, (7.2, 3.9))
    axes = panels[0, 0]
    name_axes(axes, theme, "digits that were not learned from", "images to learn from", "right, %")
    lines = []
    for kind in list_kinds(rows):
        own = take(rows, kind=kind)
        x = sorted({row["images"] for row in own})
        lines.append(plot_kind(axes, theme, kind, x, _average(own, "images", x)))
        found = [[100 * row["accuracy"] for row in take(own, images=images)] for images in x]
        axes.fill_between(
            x, list(map(min, found)), list(map(max, found)), color=look_up(kind)[0], alpha=0.2, linewidth=0
        )
    _finish(axes, theme, None, [row["images"] for row in rows])
    explain(figure, theme, lines)
    return figure
