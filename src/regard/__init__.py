"""Attention for PyTorch as one function: score × weigh × mask → values."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import bias, mask, score, weigh
    from regard.core import RegardError
    from regard.engine import attend, explain, look
    from regard.watching import watch

__version__ = "0.1.0"
__all__ = ["RegardError", "attend", "bias", "explain", "look", "mask", "score", "watch", "weigh"]

# where a name is found when it is first used: a command line says its help before torch is there
_HOMES = {
    "RegardError": "regard.core",
    "attend": "regard.engine",
    "explain": "regard.engine",
    "look": "regard.engine",
    "watch": "regard.watching",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(_HOMES.get(name, f"{__name__}.{name}"))
    found = getattr(home, name) if name in _HOMES else home
    # the next look does not come here
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
