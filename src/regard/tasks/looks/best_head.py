"""The head of a sight that says the most, drawn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from regard.core import RegardError
from regard.views.page.heads import measure, split
from regard.views.page.tokens import Labels
from regard.views.sheet import check_path, open_sheet, save_figure

if TYPE_CHECKING:
    from regard.tasks.looks.sight import Sight

# more tokens than this are drawn as a map of blocks, not cell by cell
FEW = 120


# between two texts, and from the label of one: where there are such, they say more than a text's look at itself
BETWEEN = (("target", "source"), ("label", "text"))


def find_telling(sight: Sight, side: str | None = None) -> tuple[str, int]:
    """The attention and the head: sharp, and neither a sink nor a diagonal; between two texts, where there are two.

    Of those whose queries are of `side`, where it is named and there are some.
    """
    found: list[tuple[float, str, int]] = []
    for name, look in sight.seen.items():
        is_own = sight.sides[name] not in BETWEEN
        found += [(measure(one, is_own).interest, name, head) for head, one in enumerate(split(look, 0))]
    if not found:
        raise RegardError("look saw no attention: none of the layers that were chosen ran.")
    found = [one for one in found if sight.sides[one[1]][0] == side] or found
    crossed = [one for one in found if sight.sides[one[1]] in BETWEEN]
    # of equals the first
    _, name, head = max(crossed or found, key=lambda one: one[0])
    return name, head


def list_labels(labels: Labels) -> list[str]:
    """Labels for a picture: the space that parts two words is no part of either."""
    return [label.strip() or label for label in labels.labels]


def draw(sight: Sight, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Draw the most telling head: over the picture, as an alignment of two texts, as bars of one row, or as a map."""
    from regard.views.figures import align, map, patches, row
    from regard.views.reading import read_row

    place = check_path(path)
    name, head = find_telling(sight)
    look, (queries, keys) = sight.seen[name], sight.sides[name]
    rows, columns = (list_labels(sight.tokens[side]) for side in (queries, keys))
    shown = f"{title or sight.title} — {name}, head {head}".encode(errors="replace").decode()
    axes: Any
    if sight.image is not None:
        import numpy as np

        # the row of the class, which stands for the picture as a whole
        axes = patches(read_row(look, 0, head)[0], np.asarray(sight.image), sight.grid, skip=sight.skip)
    elif queries == "label":
        axes = row(look, 0, head=head, keys=columns, title=shown)
    elif queries != keys and keys != "text" and max(len(rows), len(columns)) <= FEW:
        axes = align(look, columns, rows, head=head, title=shown)
    else:
        axes = map(look, head=head, tokens=rows, keys=columns, title=shown)
    with open_sheet():
        save_figure(axes.figure, place)
