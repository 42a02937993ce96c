"""How query i regards key j."""

from regard.score.additive import Additive
from regard.score.bilinear import Bilinear
from regard.score.concat import Concat
from regard.score.cosine import Cosine
from regard.score.custom import Custom
from regard.score.dot import Dot
from regard.score.feature import Feature
from regard.score.gaussian import Gaussian

__all__ = ["Additive", "Bilinear", "Concat", "Cosine", "Custom", "Dot", "Feature", "Gaussian"]
