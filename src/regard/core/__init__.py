"""The vocabulary: sizes and tiles, the contracts of the terms, the one error. No mathematics."""

from regard.core.biases import Bias
from regard.core.errors import RegardError
from regard.core.masks import And, Mask, Not, Or
from regard.core.sizes import Sizes, Tile
from regard.core.terms import Online, Pair, Pointwise, Row, Score, Term, Weigh

__all__ = [
    "And", "Bias", "Mask", "Not", "Online", "Or", "Pair", "Pointwise", "RegardError", "Row", "Score", "Sizes", "Term",
    "Tile", "Weigh",
]  # fmt: skip
