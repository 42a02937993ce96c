"""Figures of attention weights by matplotlib: each function takes `ax=` and returns Axes."""

from regard.views.figures.align import align
from regard.views.figures.compare import compare
from regard.views.figures.edges import edges
from regard.views.figures.heads import heads
from regard.views.figures.map import map
from regard.views.figures.patches import patches
from regard.views.figures.row import row

__all__ = ["align", "compare", "edges", "heads", "map", "patches", "row"]
