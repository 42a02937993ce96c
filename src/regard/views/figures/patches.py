"""The attention of one query over the patches of an image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core import RegardError
from regard.views.figures.axes import add_bar, check_axes, clear_frame, fit, open_axes, write_title
from regard.views.figures.colours import cover, share_scale
from regard.views.fonts import PLAIN
from regard.views.pixels import read_pixels
from regard.views.reading import Table, to_numbers
from regard.views.sheet import open_sheet

# inches, and how much of the picture shows through
LARGEST, THROUGH = 5.0, 0.4


def patches(weights: Any, image: Any, grid: tuple[int, int] | None = None, *, skip: int = 0, ax: Any = None) -> Any:
    """Draw one query's weights over the patches of an image, on top of it in grey.

    >>> axes = patches([0.1, 0.2, 0.3, 0.4], np.zeros((8, 8, 3)))
    >>> axes.images[-1].get_array().tolist()
    [[0.1, 0.2], [0.3, 0.4]]

    `image` is (height, width), with 3 or 4 colours last or first: whole numbers from 0 to 255 or fractions from 0
    to 1. `grid` is rows and columns of patches; without it, as many of each. `skip` leading weights belong to tokens
    that are no patches, as a class token; the title says how much weight they have.
    """
    row, picture = _read_row(weights), _read_grey(image)
    if isinstance(skip, bool) or not isinstance(skip, int) or not 0 <= skip < row.size:
        raise RegardError(f"skip must leave a patch of the {row.size} weights, got {str(skip)[:40]}.")
    rows, columns = _read_grid(grid, row.size - skip)
    table = row[skip:].reshape(rows, columns)
    height, width = picture.shape[:2]
    with open_sheet():
        check_axes(ax)
        scale = LARGEST / max(height, width)
        axes = open_axes(ax, max(width * scale, 1.0), max(height * scale, 1.0))
        extent = (0, width, height, 0)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, extent=extent, aspect="auto" if ax is None else "equal")
        norm, colours = share_scale([table])
        shown = axes.imshow(
            cover(table), cmap=colours, norm=norm, extent=extent, interpolation="nearest", alpha=1 - THROUGH,
            aspect="auto" if ax is None else "equal",
        )  # fmt: skip
        clear_frame(axes)
        axes.set_xticks([])
        axes.set_yticks([])
        add_bar(axes, shown, "weight", ax is None).solids.set_alpha(1)
        if skip:
            lines = f"{skip} leading token{'s' * (skip > 1)} skipped, with a weight of {row[:skip].sum():.3g}"
            write_title(axes, lines, 4.0, [PLAIN], size=9)
        if ax is None:
            fit(axes.figure)
    return axes


def _read_row(weights: Any) -> Table:
    try:
        row = to_numbers(weights)
    except (TypeError, ValueError, RuntimeError):
        raise RegardError("weights must be a list of numbers, one for each patch.") from None
    if row.ndim != 1 or not row.size:
        raise RegardError(f"weights must be one query's, of shape (patches,), got {row.shape}.")
    return row


def _read_grid(grid: Any, count: int) -> tuple[int, int]:
    if grid is None:
        side = math.isqrt(count)
        if side * side != count:
            raise RegardError(f"{count} patches are no square: give grid=(rows, columns), and skip= for other tokens.")
        return side, side
    whole = isinstance(grid, tuple | list) and len(grid) == 2 and all(isinstance(x, int) and x > 0 for x in grid)
    if not whole or grid[0] * grid[1] != count:
        raise RegardError(f"grid must be (rows, columns) of {count} patches, got {str(grid)[:40]}.")
    return int(grid[0]), int(grid[1])


def _read_grey(image: Any) -> npt.NDArray[np.float64]:
    """The image in grey from 0 to 1: colours are for the weights."""
    pixels = read_pixels(image)
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels[..., :3] @ np.array([0.299, 0.587, 0.114])
