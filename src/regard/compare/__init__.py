"""Convolution, recurrence and self-attention side by side: what each costs, how far it sees, what it learns."""

from regard.compare.comparison import Comparison
from regard.compare.kinds import KINDS, Dimensions, Kind, count_parameters, match_width
from regard.compare.layers import Convolution, LinearAttention, Recurrence, WindowedAttention
from regard.compare.measure.memory import find_peak
from regard.compare.measure.operations import count_operations
from regard.compare.measure.paths import find_dependence, find_path, find_reach
from regard.compare.measure.steps import find_chain
from regard.compare.run import find_kept, measure
from regard.compare.settings import PARTS, Settings

__all__ = [
    "KINDS", "PARTS", "Comparison", "Convolution", "Dimensions", "Kind", "LinearAttention", "Recurrence", "Settings",
    "WindowedAttention", "count_operations", "count_parameters", "find_chain", "find_dependence", "find_kept",
    "find_path", "find_peak", "find_reach", "match_width", "measure",
]  # fmt: skip
