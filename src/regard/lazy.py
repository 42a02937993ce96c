"""Lazy imports: names of a package, imported when first used, so that the command line starts without torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def export(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, by the module that defines each name; "" where it is a module itself.

    >>> find, _ = export("json", {"JSONDecoder": "decoder", "tool": ""})
    >>> find("JSONDecoder").__name__, find("tool").__name__
    ('JSONDecoder', 'json.tool')
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(f"{package}.{homes[name] or name}")
        found = getattr(home, name) if homes[name] else home
        # the next look does not come here
        setattr(sys.modules[package], name, found)
        return found

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, list_names
