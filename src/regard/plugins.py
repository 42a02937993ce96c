"""Objects by "module:name", imported when first used, and those that other packages declare as entry points."""

from __future__ import annotations

import functools
import importlib
from importlib.metadata import entry_points
from typing import Any


def load(reference: str) -> Any:
    """The object that "module:name" names.

    >>> load("json.decoder:JSONDecoder").__name__
    'JSONDecoder'
    """
    module, _, name = reference.partition(":")
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


@functools.cache
def find_plugins(kind: str) -> dict[str, str]:
    """What installed packages declare in the group `regard.<kind>`: references by name; nothing is imported.

    >>> find_plugins("nothing")
    {}
    """
    return {one.name: one.value for one in entry_points(group=f"regard.{kind}")}
