"""The one attention function, `attend`, and the backends that compute it."""

from regard.engine.attend import attend, explain
from regard.engine.look import Look, look
from regard.engine.weights import find_weights

__all__ = ["Look", "attend", "explain", "find_weights", "look"]
