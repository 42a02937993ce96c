"""What the configs of models share: fields of known kinds and names, and the way back from JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, TypeVar

from regard.core import RegardError
from regard.layers.blocks import ACTIVATIONS
from regard.layers.multihead import SCORES
from regard.models.parts import POSITIONS, WEIGHS

T = TypeVar("T")

# what JSON may bring for a field of this type
_KINDS: dict[str, Any] = {
    "int": int, "int | None": (int, NoneType), "float": (int, float), "bool": bool, "str": str,
    "tuple[str, ...]": tuple,
}  # fmt: skip
NAMED: dict[str, Collection[str]] = {
    "position": POSITIONS, "score": SCORES, "weigh": WEIGHS, "activation": ACTIVATIONS,
}  # fmt: skip


def check_fields(config: Any, named: Mapping[str, Collection[str]] = NAMED, may_be_zero: Collection[str] = ()) -> None:
    """Complain unless each field of a dataclass is of its kind, among its names, a rate below one, a count above zero.

    `may_be_zero` are counts of what need not be there.
    """
    for field in fields(config):
        name, value, kind = field.name, getattr(config, field.name), str(field.type)
        # True is an int to Python
        if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
            raise RegardError(f"Config {name} must be {kind}, got {value!r}.")
        if name in named and value not in named[name]:
            names = ", ".join(map(repr, named[name]))
            raise RegardError(f"Config {name} must be one of {names}, got {value!r}.")
        if name.endswith("dropout") and not 0 <= value < 1:
            raise RegardError(f"Config {name} must lie in [0, 1), got {value}.")
        if kind.startswith("int") and name != "pad_id" and value is not None:
            least = 0 if name in may_be_zero else 1
            if value < least:
                raise RegardError(f"Config {name} must be at least {least}, got {value}.")


def check_heads(num_hiddens: int, num_heads: int) -> None:
    """Complain unless each head has as much of the width as the others."""
    if num_hiddens % num_heads:
        raise RegardError(f"Config num_hiddens={num_hiddens} must be a multiple of num_heads={num_heads}.")


def take_preset(name: str, presets: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The entries of one of the presets."""
    if name not in presets:
        raise RegardError(f"Config preset must be one of {', '.join(map(repr, presets))}, got {name!r}.")
    return presets[name]


def make_config(kind: type[T], entries: Mapping[str, Any]) -> T:
    """A config of what `dataclasses.asdict` gave, as after a way through JSON: lists are tuples again."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in entries:
        if name not in known:
            raise RegardError(f"Config has no {name!r}; it has {', '.join(known)}.")
    if "vocab_size" not in entries:
        raise RegardError(f"Config needs 'vocab_size', got {', '.join(entries) or 'nothing'}.")
    return kind(**{name: tuple(x) if isinstance(x, list) else x for name, x in entries.items()})
