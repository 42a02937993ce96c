"""The one function, and how it is carried out."""

from regard.engine.attend import attend, explain
from regard.engine.weights import find_weights

__all__ = ["attend", "explain", "find_weights"]
