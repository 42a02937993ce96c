"""The alignment of a translation as a picture: which source token each target token attends to."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy.typing as npt
from torch import Tensor

from regard.views.figures.align import draw_cells, read_weights
from regard.views.reading import check_title, list_texts, read_tokens
from regard.views.sheet import check_path, open_sheet, save_figure


def draw_alignment(
    weights: Tensor | npt.ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Draw an alignment to a file: a heat map of the weights (targets, sources), a row for every target token.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     picture = pathlib.Path(folder, "attention.png")
    ...     draw_alignment([[0.9, 0.1], [0.2, 0.8]], ["guten", "tag"], ["good", "day"], picture)
    ...     picture.read_bytes()[1:4]
    b'PNG'

    The path's ending picks the kind: .png, .svg or .pdf. Small maps carry their numbers; what is not finite is grey.
    Characters that no font on the machine has are named in a warning. `align` gives the Axes in place of a file.
    """
    place = check_path(path)
    check_title(title)
    source_tokens = list_texts(source_tokens, "source_tokens")
    target_tokens = list_texts(target_tokens, "target_tokens")
    table = read_weights(weights, len(target_tokens), len(source_tokens))
    sources, targets = (read_tokens(x, len(x)) or [] for x in (source_tokens, target_tokens))
    with open_sheet() as paper:
        # a plain figure, whatever pyplot has open: a file is no window
        save_figure(draw_cells(table, sources, targets, title, make=paper.Figure).figure, place)
