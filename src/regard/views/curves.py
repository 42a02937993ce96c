"""Learning curves: losses and metrics over the training steps."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from regard.core import RegardError
from regard.views.fonts import choose_fonts
from regard.views.labels import show_line
from regard.views.sheet import LARGEST, check_path, open_sheet, save_figure

# Okabe and Ito's blue, vermilion and green: told apart by every kind of eye
TRAINING, VALIDATION, BEST = "#0072B2", "#D55E00", "#009E73"
# of these less is better
FALLING = ("loss", "perplexity", "error", "ter", "wer", "cer", "mse", "mae", "nll")
# shares of all there is: on an axis of their own, from nothing to all of it
SHARES = ("accuracy", "f1", "precision", "recall", "exact")
VALID = "valid_"
ACROSS = 3

Curve = list[tuple[float, float]]


def draw_curves(history: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw the learning curves of a run's metrics.jsonl: both losses in one panel, each other valid_… in its own.

    >>> import pathlib, tempfile
    >>> history = [{"step": 100, "loss": 2.3, "valid_loss": 2.1}, {"step": 200, "loss": 1.8, "valid_loss": 1.9}]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_curves(history, pathlib.Path(folder, "curves.svg"))
    ...     "<svg" in pathlib.Path(folder, "curves.svg").read_text(encoding="utf-8")
    True

    The best point of each validation is marked. Accuracies and the like have an axis from 0 to 100. A line may lack any
    of them; None, NaN and infinity are shown as ×. Of two lines with the same step, as after a resumed run, the later
    counts.
    """
    place = check_path(path)
    curves = _read_history(history)
    losses = {name: curves.pop(key, []) for name, key in (("training", "loss"), ("validation", "valid_loss"))}
    panels = [("loss", {name: curve for name, curve in losses.items() if curve})]
    panels += [(show_line(key.removeprefix(VALID)), {"validation": curve}) for key, curve in curves.items()]
    # in one unit, all of them: beside an accuracy of 30, an f1 of 0.4 is of 100
    shares = [value for key, curve in curves.items() if _is_share(key) for _, value in curve]
    with open_sheet() as paper:
        families, _ = choose_fonts("".join(name for name, _ in panels))
        across = min(len(panels), ACROSS)
        down = math.ceil(len(panels) / across)
        figure = paper.Figure(figsize=(4.8 * across, 3.4 * down), layout="constrained")
        for number, (name, lines) in enumerate(panels, start=1):
            axes = figure.add_subplot(down, across, number)
            axes.set_title(name, size=11, family=families, color="#222222", loc="left")
            _draw_panel(axes, name, lines, shares)
        save_figure(figure, place)


def find_span(
    names: Iterable[str], values: Iterable[float], beside: Iterable[float] = ()
) -> tuple[float, float] | None:
    """The axis limits of curves that are all fractions, of 100 or of 1; None where one is not, or is off such an axis.

    `beside` are shares in the same unit that other axes have.

    >>> find_span(["valid_accuracy"], [91.5, 97.0]), find_span(["f1"], [0.2, 0.7]), find_span(["f1", "loss"], [1.0])
    ((0.0, 100.0), (0.0, 1.0), None)
    """
    are_shares = [_is_share(name) for name in names]
    known = [value for value in values if math.isfinite(value)]
    if not known or not all(are_shares):
        return None
    top = 1.0 if max([*known, *filter(math.isfinite, beside)]) <= 1 else 100.0
    return (0.0, top) if min(known) >= 0 and max(known) <= top else None


def _is_share(name: str) -> bool:
    return any(word in SHARES for word in name.lower().split("_"))


def set_span(axes: Any, span: tuple[float, float] | None) -> None:
    """Set the limits of the y axis, with room for marks that lie on either."""
    if span is None:
        return
    low, high = span
    axes.set_ylim(low - 0.02 * high, 1.04 * high)
    axes.set_yticks([low + (high - low) * k / 5 for k in range(6)])


def _read_history(history: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """The points of each curve by name, in the order of steps; what is not finite is NaN."""
    found: dict[str, dict[float, float]] = {}
    for number, line in enumerate(history, start=1):
        if not isinstance(line, Mapping) or not math.isfinite(step := _read_number(line.get("step"))):
            raise RegardError(f"history, line {number}: must be an object with the number of its step.")
        for key, value in line.items():
            if key != "loss" and not str(key).startswith(VALID):
                continue
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise RegardError(f"history, line {number}: {key[:40]} must be a number, got {str(value)[:40]!r}.")
            found.setdefault(key, {})[step] = _read_number(value)
    return {key: sorted(points.items()) for key, points in found.items()}


def _read_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if abs(number) < LARGEST else math.nan


def _draw_panel(axes: Any, name: str, lines: dict[str, Curve], shares: Sequence[float]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("step", size=9)
    axes.tick_params(labelsize=8, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    finite = [point for curve in lines.values() for point in curve if not math.isnan(point[1])]
    if not finite:
        text = "no finite values" if lines else "no values yet"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#888888")
        axes.set_yticks([])
    for label, curve in lines.items():
        steps, values = zip(*curve, strict=True)
        colour = TRAINING if label == "training" else VALIDATION
        dots = {"marker": "o", "markersize": 3.5} if len(curve) <= 40 else {}
        axes.plot(steps, values, color=colour, linestyle="-", linewidth=1.6, label=label, **dots)
        broken = [step for step, value in curve if math.isnan(value)]
        if broken:
            # on the floor of the panel, wherever that is
            floor = axes.get_xaxis_transform()
            axes.plot(broken, [0.02] * len(broken), "x", color=colour, transform=floor, label=f"{label} not finite")
        if label == "validation" and finite:
            _mark_best(axes, name, [point for point in curve if not math.isnan(point[1])])
    set_span(axes, find_span([name], [value for _, value in finite], shares))
    if lines:
        axes.grid(color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, fontsize=8)


def _mark_best(axes: Any, name: str, points: Curve) -> None:
    if not points:
        return
    falls = any(word in FALLING for word in name.lower().split("_"))
    step, value = (min if falls else max)(points, key=lambda point: point[1])
    label = f"best {value:.4g} at step {step:,.0f}"
    axes.plot([step], [value], marker="*", markersize=13, color=BEST, linestyle="none", label=label, zorder=4,
              markeredgecolor="white")  # fmt: skip
