"""Views: pictures and pages of attention weights, and learning curves."""

from regard.views.alignment import draw_alignment
from regard.views.curves import draw_curves
from regard.views.figures import align, compare, edges, heads, map, patches, row
from regard.views.live import live
from regard.views.page import Labels, Page, label_encoding, label_tokens, page
from regard.views.terminal import show

__all__ = [
    "Labels", "Page", "align", "compare", "draw_alignment", "draw_curves", "edges", "heads", "label_encoding",
    "label_tokens", "live", "map", "page", "patches", "row", "show",
]  # fmt: skip
