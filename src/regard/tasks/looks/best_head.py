"""Choosing the most informative head of a look, to show it first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core import RegardError
from regard.views.page.heads import measure, split
from regard.views.page.tokens import Labels

if TYPE_CHECKING:
    from regard.tasks.looks.sight import Sight


def find_best_head(sight: Sight, *, is_queried: bool = False) -> tuple[str, int]:
    """The attention and head to show first: sharp, no sink, no diagonal; cross-attention where there is some.

    Where one of its queries `is_queried`, it is none of the label of a whole, if there are others.
    """
    found: list[tuple[float, str, int]] = []
    for name, look in sight.seen.items():
        is_own = not _is_between(sight.sides[name])
        found += [(measure(one, is_own).interest, name, head) for head, one in enumerate(split(look, 0))]
    if not found:
        raise RegardError("look saw no attention: none of the layers that were chosen ran.")
    if is_queried:
        found = [one for one in found if sight.sides[one[1]][0] != "label"] or found
    crossed = [one for one in found if _is_between(sight.sides[one[1]])]
    # of equals the first
    _, name, head = max(crossed or found, key=lambda one: one[0])
    return name, head


def _is_between(sides: tuple[str, str]) -> bool:
    """Whether it is cross-attention or attention pooling: both tell more than self-attention."""
    return sides[0] == "label" or sides == ("target", "source")


def list_labels(labels: Labels) -> list[str]:
    """Token labels for a picture, without the spaces between words."""
    return [label.strip() or label for label in labels.labels]
