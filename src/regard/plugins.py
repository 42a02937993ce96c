"""Plugins: what other packages declare as entry points, and imports by "module:name"."""

from __future__ import annotations

import functools
import importlib
from importlib.metadata import entry_points
from typing import Any

# between what several packages declare by one name
AND = " and "


def load(reference: str) -> Any:
    """Import the object that "module:name" names.

    >>> load("json.decoder:JSONDecoder").__name__
    'JSONDecoder'
    """
    module, _, name = reference.partition(":")
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


@functools.cache
def find_plugins(kind: str) -> dict[str, str]:
    """The entry points of the group `regard.<kind>` in installed packages, by name; nothing is imported.

    Where packages declare one name for different things, these stand with `AND` between, and cannot be imported.

    >>> find_plugins("nothing")
    {}
    """
    found: dict[str, set[str]] = {}
    for one in entry_points(group=f"regard.{kind}"):
        found.setdefault(one.name, set()).add(one.value)
    return {name: AND.join(sorted(values)) for name, values in found.items()}
