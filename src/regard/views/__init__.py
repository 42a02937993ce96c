"""Pictures: what a model attends to, and how its training went."""

from regard.views.alignment import draw_alignment
from regard.views.curves import draw_curves

__all__ = ["draw_alignment", "draw_curves"]
