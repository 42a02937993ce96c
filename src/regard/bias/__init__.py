"""Biases: what position adds to the scores."""

from regard.bias.alibi import Alibi
from regard.bias.dense import Dense
from regard.bias.quadratic import Quadratic
from regard.bias.relative import Relative

__all__ = ["Alibi", "Dense", "Quadratic", "Relative"]
