"""Options generated from the fields of a dataclass: those that are declared by `setting`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import MISSING, field, fields, make_dataclass
from inspect import formatannotation
from typing import Annotated, Any, get_type_hints

from regard.cli.options.spread import Some
from regard.core import RegardError

# what stands for a value in help
METAVARS = {int: "N", float: "X", str: "TEXT", bool: None}


def make_options(kind: type[Any], without: Container[str] = ()) -> type[Any]:
    """A dataclass with an option for each setting of another; what is not given is None.

    >>> from regard.models.seq2seq_config import Config
    >>> made = make_options(Config, without=("src_vocab_size", "tgt_vocab_size"))
    >>> made(num_layers=3).num_layers, made().num_layers is None
    (3, True)
    """
    hints, made = get_type_hints(kind), []
    for one in fields(kind):
        if "help" not in one.metadata or one.name in without:
            continue
        inner = next((x for x in METAVARS if hints[one.name] in (x, x | None)), hints[one.name])
        if inner not in METAVARS:
            raise RegardError(
                f"{kind.__name__} {one.name} must be int, float, str or bool to be an option,"
                f" got {formatannotation(inner)}: declare it as a plain field, not by setting."
            )
        option = _describe(one, inner)
        made.append((one.name, Annotated[inner | None, option], field(default=None)))
    return make_dataclass(f"{kind.__name__}Options", made, frozen=True)


def _describe(one: Any, inner: type[Any]) -> Any:
    """The option of a setting: its help, what it may be, and its default."""
    name, metavar, names = one.name.replace("_", "-"), METAVARS[inner], one.metadata["names"]
    default = "none" if one.default in (None, MISSING) else str(one.default).lower() if inner is bool else one.default
    said = f"{one.metadata['help'][:1].upper()}{one.metadata['help'][1:]}"
    may = f": {', '.join(names)}" if names else ""
    limits = {"min": one.metadata["least"]} if inner is int else {}
    flags = (f"--{name}/--no-{name}",) if inner is bool else (f"--{name}",)
    return Some("NAME" if names else metavar, f"{said}{may}.  [default: {default}]", *flags, **limits)
