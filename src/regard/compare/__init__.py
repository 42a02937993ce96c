"""Convolution, recurrence and self-attention side by side: what each costs, how far it sees, what it learns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.lazy import export

if TYPE_CHECKING:
    from regard.compare.comparison import Comparison, find_kept, measure
    from regard.compare.kinds import (
        KINDS,
        Convolution,
        Kind,
        LinearAttention,
        Recurrence,
        WindowedAttention,
        count_parameters,
        match_width,
    )
    from regard.compare.meters.sight import find_dependence, find_reach
    from regard.compare.meters.spending import find_peak
    from regard.compare.part import Listing, Part
    from regard.compare.parts.operations import count_operations
    from regard.compare.parts.paths import find_path
    from regard.compare.parts.steps import find_chain
    from regard.compare.registry import list_parts
    from regard.compare.settings import Dimensions, Settings

__all__ = [
    "KINDS", "Comparison", "Convolution", "Dimensions", "Kind", "LinearAttention", "Listing", "Part",
    "Recurrence", "Settings", "WindowedAttention", "count_operations", "count_parameters", "find_chain",
    "find_dependence", "find_kept", "find_path", "find_peak", "find_reach", "list_parts", "match_width", "measure",
]  # fmt: skip
__getattr__, __dir__ = export(
    __name__,
    {
        "KINDS": "kinds", "Comparison": "comparison", "Convolution": "kinds", "Dimensions": "settings",
        "Kind": "kinds", "LinearAttention": "kinds", "Listing": "part", "Part": "part",
        "Recurrence": "kinds", "Settings": "settings", "WindowedAttention": "kinds",
        "count_operations": "parts.operations", "count_parameters": "kinds", "find_chain": "parts.steps",
        "find_dependence": "meters.sight", "find_kept": "comparison", "find_path": "parts.paths",
        "find_peak": "meters.spending", "find_reach": "meters.sight", "list_parts": "registry", "match_width": "kinds",
        "measure": "comparison",
    },
)  # fmt: skip
