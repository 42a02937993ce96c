"""Colour maps, and one scale for all panels of a figure; safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core import RegardError
from regard.views.sheet import LARGEST

# dark blue to yellow, in equal steps of lightness
WEIGHTS = "cividis"
# blue, white, orange
DIFFERENCES = ("#16437e", "#5b8ec4", "#c3d7ea", "#f7f7f7", "#f7d3ae", "#dd8a3b", "#8f4a08")
# not a number
NOTHING = "#c8c8c8"
# orders of magnitude that a logarithmic scale spans at most
DECADES = 4
# of many numbers, the few largest may leave the scale, which then ends in an arrow: else one cell darkens all others
MANY, KEPT = 1000, 99.5


def share_scale(
    tables: Iterable[npt.NDArray[np.float64]], log: bool = False, on_white: bool = False
) -> tuple[Any, Any]:
    """The norm and colour map for all of these tables; a diverging one where weights are below 0.

    >>> norm, colours = share_scale([np.array([0.1, 0.2]), np.array([0.7])])
    >>> float(norm.vmin), float(norm.vmax), colours.name
    (0.0, 0.7, 'cividis')

    Lines `on_white` are the darker the more they weigh; cells, which hide the paper, the brighter.
    """
    import matplotlib
    from matplotlib import colors

    parts = [table[np.abs(table) < LARGEST] for table in tables]
    low = min((float(part.min()) for part in parts if part.size), default=0.0)
    high = max((float(part.max()) for part in parts if part.size), default=0.0)
    sequential = matplotlib.colormaps[WEIGHTS + "_r" * on_white].with_extremes(bad=NOTHING)
    if low < 0:
        if log:
            raise RegardError(f"log=True needs weights of 0 or more, got {low:.3g}: leave it out.")
        return balance(max(high, -low))
    if high == 0:
        return colors.Normalize(0.0, 1.0), sequential
    if log:
        least = min((float(part[part > 0].min()) for part in parts if (part > 0).any()), default=high)
        # clip: what is 0 has the darkest colour, and is not missing
        return colors.LogNorm(min(max(least, high * 10.0**-DECADES), high / 10), high, clip=True), sequential
    numbers = np.concatenate([part[part > 0] for part in parts])
    if sum(part.size for part in parts) >= MANY and high > 2 * (most := float(np.percentile(numbers, KEPT))):
        # the bar of colours reads it
        vars(sequential)["colorbar_extend"] = "max"
        high = most
    return colors.Normalize(0.0, high), sequential


def balance(most: float) -> tuple[Any, Any]:
    """A diverging colour map, white at 0, and its norm.

    >>> norm, colours = balance(0.5)
    >>> float(norm(0.0))
    0.5
    """
    from matplotlib import colors

    ramp = colors.LinearSegmentedColormap.from_list("blue_orange", DIFFERENCES).with_extremes(bad=NOTHING)
    most = most if most > 0 else 1.0
    return colors.Normalize(-most, most), ramp


def cover(table: npt.NDArray[np.float64]) -> Any:
    """The table as a masked array, masked where it is not finite; under the mask, too, matplotlib computes."""
    finite = np.abs(table) < LARGEST
    return np.ma.masked_array(np.where(finite, table, 0.0), mask=~finite)


def pick_ink(colour: tuple[float, ...]) -> str:
    """Black or white text, whichever is read better on a colour."""
    red, green, blue = colour[:3]
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "#222222"
