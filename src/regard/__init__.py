"""Attention for PyTorch as one function: score × weigh × mask → values."""

from regard import bias, mask, score, weigh
from regard.core import RegardError
from regard.engine import attend, explain

__version__ = "0.1.0"
__all__ = ["RegardError", "attend", "bias", "explain", "mask", "score", "weigh"]
