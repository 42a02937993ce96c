"""Score functions: how much query i regards key j."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.names import Named
from regard.lazy import export

if TYPE_CHECKING:
    from regard.core import Score
    from regard.score.additive import Additive
    from regard.score.bilinear import Bilinear
    from regard.score.concat import Concat
    from regard.score.cosine import Cosine
    from regard.score.custom import Custom
    from regard.score.dot import Dot
    from regard.score.feature import Feature
    from regard.score.gaussian import Gaussian

__all__ = ["Additive", "Bilinear", "Concat", "Cosine", "Custom", "Dot", "Feature", "Gaussian"]
# the file is the class in lower case
__getattr__, __dir__ = export(__name__, {name: name.lower() for name in __all__})
# a function of one's own has no name
SCORES: Named[Score] = Named("score", "Score", [name for name in __all__ if name != "Custom"])
