"""Type checks of a term's fields, read from their annotations."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from torch import Generator, Tensor

# words for messages; anything else is called by the name of its class
_WORDS: dict[Any, str] = {
    int: "an integer", float: "a number", str: "a string", bool: "True or False", Tensor: "a tensor", NoneType: "None",
    Generator: "a torch.Generator", tuple: "a pair of integers", Callable: "a function",
}  # fmt: skip
# kinds whose values are right if their type is, and hold no tensor
_PLAIN: set[Any] = {int, float, str, bool, NoneType}


def misfit_kind(name: str, value: object, kinds: tuple[Any, ...]) -> str | None:
    """The error message if a value is of none of these types, else None.

    >>> misfit_kind("Causal offset", 1.5, (int, Tensor, NoneType))
    'Causal offset must be an integer, a tensor or None, got 1.5.'
    """
    for kind in kinds:
        if _is(value, kind):
            return None
    words = [_WORDS.get(kind) or f"a {kind.__name__.lower()}" for kind in kinds]
    expected = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return f"{name} must be {expected}, got {describe(value)}."


def describe(value: Any) -> str:
    """A value as error messages show it: itself where it is short, else its class."""
    if isinstance(value, type):
        return f"the class {value.__name__} (write {value.__name__}(…))"
    return repr(value) if isinstance(value, str | int | float | bool | tuple) else type(value).__name__


class Field(NamedTuple):
    """A field of a term: the types that its annotation allows, and those that need no further check."""

    name: str
    kinds: tuple[Any, ...]
    plain: frozenset[type]


def list_fields(cls: type) -> tuple[Field, ...]:
    """The fields of a term class."""
    hints = get_type_hints(cls)
    kinds = {f.name: tuple(_plain(hint) for hint in _parts(hints[f.name])) for f in fields(cls)}
    # whole numbers do for any number
    return tuple(
        Field(name, allowed, frozenset(_PLAIN & {*allowed, *((int,) if float in allowed else ())}))
        for name, allowed in kinds.items()
    )


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)


def _plain(hint: Any) -> Any:
    origin = get_origin(hint)
    return Callable if origin is Callable or hint is Callable else origin or hint


def _is(value: object, kind: Any) -> bool:
    if kind is Callable:
        return callable(value)
    if kind in (int, float):
        # numpy's numbers count, True and False do not
        number = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    if kind is tuple:
        return isinstance(value, tuple) and len(value) == 2 and all(_is(part, int) for part in value)
    return isinstance(value, kind)
