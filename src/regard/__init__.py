"""Attention for PyTorch as one function: score × weigh × mask → values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.lazy import export

if TYPE_CHECKING:
    from regard import bias, mask, score, weigh
    from regard.core import RegardError
    from regard.engine import attend, explain, look
    from regard.watching import watch

__version__ = "0.1.0"
__all__ = ["RegardError", "attend", "bias", "explain", "look", "mask", "score", "watch", "weigh"]
__getattr__, __dir__ = export(
    __name__,
    {
        "RegardError": "core", "attend": "engine", "bias": "", "explain": "engine", "look": "engine", "mask": "",
        "score": "", "watch": "watching", "weigh": "",
    },
)  # fmt: skip
