"""What the configs of models share: fields of known kinds and names, and the way back from JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, field, fields
from types import NoneType
from typing import Any, TypeVar

from regard.core import RegardError

T = TypeVar("T")

# what JSON may bring for a field of this type
_KINDS: dict[str, Any] = {
    "int": int, "int | None": (int, NoneType), "float": (int, float), "bool": bool, "str": str,
    "tuple[str, ...]": tuple,
}  # fmt: skip


POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "alibi", "none")


def setting(default: Any, help: str, names: Collection[str] = (), *, least: int = 1, span: str = "[0, 1)") -> Any:
    """A field of a config with what it is, in a line, and what it may be: one of `names`, a count, a number in `span`.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Config:
    ...     num_layers: int = setting(4, "layers of the encoder")
    ...     position: str = setting("none", "positional encoding", ("rotary", "none"))
    >>> [(x.name, list_values(x), x.metadata["help"]) for x in fields(Config)]
    [('num_layers', '>=1', 'layers of the encoder'), ('position', 'rotary|none', 'positional encoding')]
    """
    return field(default=default, metadata={"help": help, "names": names, "least": least, "span": span})


def list_values(of: Field[Any]) -> str:
    """What a setting may be, without a space in it."""
    if of.metadata["names"]:
        return "|".join(of.metadata["names"])
    kind = of.type if isinstance(of.type, str) else of.type.__name__
    if kind == "float":
        return str(of.metadata["span"]).replace(" ", "")
    return f">={of.metadata['least']}" if kind.startswith("int") else "true|false"


def check_fields(config: Any) -> None:
    """Complain unless each `setting` of a dataclass is of its kind and among what it may be."""
    for one in fields(config):
        name, value, kind = one.name, getattr(config, one.name), str(one.type)
        names, least, span = (one.metadata[key] for key in ("names", "least", "span"))
        # True is an int to Python
        if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
            raise RegardError(f"Config {name} must be {kind}, got {value!r}.")
        if names and value not in names:
            raise RegardError(f"Config {name} must be one of {', '.join(map(repr, names))}, got {value!r}.")
        if kind == "float":
            low, high = (float(x) for x in span[1:-1].split(","))
            # a span may leave out its lower end; it never has its upper one
            if not (low < value < high or (value == low and span.startswith("["))):
                raise RegardError(f"Config {name} must lie in {span}, got {value}.")
        if kind.startswith("int") and name != "pad_id" and value is not None and value < least:
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
    settings = fields(kind)  # type: ignore[arg-type]
    known = [one.name for one in settings]
    for name in entries:
        if name not in known:
            raise RegardError(f"Config has no {name!r}; it has {', '.join(known)}.")
    for one in settings:
        if one.default is MISSING and one.name not in entries:
            raise RegardError(f"Config needs {one.name!r}, got {', '.join(entries) or 'nothing'}.")
    return kind(**{name: tuple(x) if isinstance(x, list) else x for name, x in entries.items()})
