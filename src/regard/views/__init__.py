"""Pictures: what a model attends to, and how its training went."""

from regard.views.alignment import draw_alignment
from regard.views.curves import draw_curves
from regard.views.figures import align, compare, edges, heads, map, patches, row
from regard.views.live import live
from regard.views.page import Page, page
from regard.views.terminal import show

__all__ = [
    "Page", "align", "compare", "draw_alignment", "draw_curves", "edges", "heads", "live", "map", "page", "patches",
    "row", "show",
]  # fmt: skip
