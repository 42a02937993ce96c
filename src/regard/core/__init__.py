"""The vocabulary: sizes and tiles, the base classes of scores, weighers, masks and biases, the one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.lazy import export

if TYPE_CHECKING:
    from regard.core.biases import Bias
    from regard.core.errors import RegardError
    from regard.core.masks import And, Mask, Not, Or
    from regard.core.pairs import Pair
    from regard.core.sizes import Sizes, Tile
    from regard.core.terms import Online, Pointwise, Row, Score, Term, Weigh

__all__ = [
    "And", "Bias", "Mask", "Not", "Online", "Or", "Pair", "Pointwise", "RegardError", "Row", "Score", "Sizes", "Term",
    "Tile", "Weigh",
]  # fmt: skip
__getattr__, __dir__ = export(
    __name__,
    {
        "And": "masks", "Bias": "biases", "Mask": "masks", "Not": "masks", "Online": "terms", "Or": "masks",
        "Pair": "pairs", "Pointwise": "terms", "RegardError": "errors", "Row": "terms", "Score": "terms",
        "Sizes": "sizes", "Term": "terms", "Tile": "sizes", "Weigh": "terms",
    },
)  # fmt: skip
