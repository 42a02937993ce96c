"""Pictures of a comparison, each on light paper and on dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from regard.compare.report.figures.counts import draw_memory, draw_operations, draw_seconds, draw_steps
from regard.compare.report.figures.learned import draw_digits, draw_order, draw_recall
from regard.compare.report.figures.sight import draw_maps, draw_paths
from regard.compare.report.figures.style import DARK, LIGHT, Theme
from regard.views.sheet import ENDINGS, open_sheet

__all__ = ["DARK", "LIGHT", "PICTURES", "Picture", "Theme", "repaint", "write_svg"]


@dataclass(frozen=True)
class Picture:
    """A picture of a part: what draws it, and how it is to be read."""

    name: str
    part: str
    draw: Callable[[Any, Mapping[str, Any], Mapping[str, Any], Theme], Any]
    caption: str


PICTURES = (
    Picture(
        "operations", "operations", draw_operations,
        "Operations against the number of tokens, both axes logarithmic. Points are counted; the lines on the left are"
        " the formulas, those on the right join the points. Beside each line stands its fitted power. A window"
        " meets all pairs until it is cut into tiles; its power is from there on.",
    ),
    Picture(
        "steps", "steps", draw_steps,
        "The longest chain of dependent operations against the number of tokens, both axes logarithmic.",
    ),
    Picture(
        "paths", "paths", draw_paths,
        "Layers, or steps of a recurrence, until the last output depends on the first input, against the number of"
        " tokens. Points are measured, lines are the formulas; dashes are larger kernels.",
    ),
    Picture(
        "maps", "paths", draw_maps,
        "Which of 24 outputs, down, depend on which inputs, across, after some layers: coloured where one does. What"
        " more layers do not change is drawn once; a window is drawn no wider than 8.",
    ),
    Picture(
        "seconds", "cost", draw_seconds,
        "Seconds against the number of tokens, both axes logarithmic: medians, shaded from the lower to the upper"
        " quartile.",
    ),
    Picture(
        "memory", "cost", draw_memory,
        "Extra memory at its peak against the number of tokens, both axes logarithmic. On a CPU it is what lives"
        " between operators, without what a kernel takes and gives back within one call, as a convolution for copies.",
    ),
    Picture(
        "recall", "recall", draw_recall,
        "Share of tokens recalled against their distance, for each layer: filled marks with positions, open marks"
        " without. The dotted line is chance; the dashed vertical one is the farthest distance that the model reaches.",
    ),
    Picture(
        "order", "order", draw_order,
        "Share of orders told right by each layer at the distances it reaches, with positions and without; the dotted"
        " line is chance.",
    ),
    Picture(
        "digits", "digits", draw_digits,
        "Share of digits told right against the number of images to learn from: mean over seeds, shaded from the worst"
        " to the best where there are several.",
    ),
)  # fmt: skip


def write_svg(picture: Picture, part: Mapping[str, Any], settings: Mapping[str, Any], theme: Theme = LIGHT) -> str:
    """The picture as text, the same for the same numbers.

    >>> rows = [{"kind": "conv", "images": 50 * k, "accuracy": 0.2 * k, "count": 9, "seed": 0} for k in (1, 2)]
    >>> write_svg(PICTURES[-1], {"rows": rows}, {}).startswith("<?xml")
    True
    """
    with open_sheet() as paper:
        figure = picture.draw(paper, part, settings, theme)
        content = io.StringIO()
        figure.savefig(content, format="svg", metadata=ENDINGS["svg"])
    return content.getvalue()


def repaint(svg: str, before: Theme = LIGHT, after: Theme = DARK) -> str:
    """A picture as it would be on other paper, without drawing it again.

    >>> repaint('<path style="fill: #ffffff"/>')
    '<path style="fill: #1b1e24"/>'
    """
    inks = {getattr(before, field.name): getattr(after, field.name) for field in fields(Theme) if field.name != "name"}
    return re.sub("|".join(inks), lambda found: inks[found[0]], svg)
