"""Masks: which query may attend to which key."""

from regard.mask.allowed import Allowed
from regard.mask.document import Document
from regard.mask.edges import Edges
from regard.mask.full import Full
from regard.mask.grid import Grid
from regard.mask.lengths import Lengths
from regard.mask.window import Causal, Window

__all__ = ["Allowed", "Causal", "Document", "Edges", "Full", "Grid", "Lengths", "Window"]
