"""Configs of models: documented fields of known types and values, presets, and conversion from JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from types import NoneType
from typing import Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints

from regard.core import RegardError

T = TypeVar("T")

POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "alibi", "none")
INPUTS = ("ids", "vectors")
# what no model here is near, and where a setting alone would take all memory
MOST = 2**20


def setting(
    default: Any, help: str, names: Collection[str] = (), *, least: int = 1, most: int | None = None,
    span: str = "[0, 1)", since: int = 1,
) -> Any:  # fmt: skip
    """A field of a config, with its help in a line, and what it may be: one of `names`, a count, a number in `span`.

    >>> @dataclass(frozen=True)
    ... class Config(ModelConfig):
    ...     num_layers: int = setting(4, "layers of the encoder")
    ...     position: str = setting("none", "positional encoding", ("rotary", "none"))
    >>> kinds = get_type_hints(Config)
    >>> [(x.name, list_values(x, kinds[x.name]), x.metadata["help"]) for x in fields(Config)]
    [('num_layers', '>=1', 'layers of the encoder'), ('position', 'rotary|none', 'positional encoding')]

    Its type is int, float, bool, str or None, or a tuple or union of these; limits go for each number and name in a
    tuple. A count without `most` is the size of some weight: a folder whose weights are smaller is refused. A setting
    that came later, with the `since`th format of folders, must keep its default, which is what older folders mean.
    """
    limits = {"names": names, "least": least, "most": most, "span": span, "since": since}
    return field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class ModelConfig:
    """The base of models' configs: numbers and names that JSON can hold, each declared by `setting`.

    >>> @dataclass(frozen=True)
    ... class Config(ModelConfig):
    ...     vocab_size: int = setting(MISSING, "tokens of the vocabulary")
    ...     widths: tuple[int, ...] = setting((8,), "width of each layer")
    ...     presets = {"small": {"widths": (16, 16)}}
    >>> Config.preset("small", 9)
    Config(vocab_size=9, widths=(16, 16))
    >>> Config.from_dict({"vocab_size": 9, "widths": [4, 0]})
    Traceback (most recent call last):
    regard.core.errors.RegardError: Config widths must be at least 1, got 0.
    """

    presets: ClassVar[Mapping[str, dict[str, Any]]] = {}

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def preset(cls, name: str, *sizes: Any, **changes: Any) -> Self:
        """A config of one of `presets`, with changes; `sizes` are the first fields, in their order."""
        if name not in cls.presets:
            raise RegardError(f"Config preset must be one of {', '.join(map(repr, cls.presets))}, got {name!r}.")
        given = dict(zip((one.name for one in fields(cls)), sizes, strict=False))
        return make_config(cls, {**cls.presets[name], **given, **changes})

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """The config that `dataclasses.asdict` gave, also after JSON, which has no tuples."""
        return make_config(cls, entries)


def list_values(of: Field[Any], kind: Any) -> str:
    """The values that a setting of this type may have, without a space in it.

    >>> list_values(setting(None, "reach", least=0), int | tuple[int, int] | None)
    '>=0|[>=0,>=0]|null'
    """
    if of.metadata["names"]:
        return "|".join(of.metadata["names"])
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        return f"[{','.join('...' if part is Ellipsis else list_values(of, part) for part in parts)}]"
    if parts:
        return "|".join(list_values(of, part) for part in parts)
    if kind is float:
        return str(of.metadata["span"]).replace(" ", "")
    return {int: f">={of.metadata['least']}", bool: "true|false", str: "text", NoneType: "null"}[kind]


def check_fields(config: Any) -> None:
    """Check that each `setting` of a dataclass is of its type and among what it may be."""
    kinds = get_type_hints(type(config))
    for one in fields(config):
        if "names" not in one.metadata:
            raise RegardError(f"Config {one.name} says not what it may be: declare it by setting(…).")
        check_field(one, getattr(config, one.name), kinds[one.name])


def check_field(one: Field[Any], value: Any, kind: Any, called: str = "Config") -> None:
    """Check that a value is of the type of a `setting`, and among what it may be; `called` is what has it."""
    if not _is_of(value, kind):
        meant = kind.__name__ if isinstance(kind, type) else kind
        raise RegardError(f"{called} {one.name} must be {meant}, got {value!r:.80}.")
    for part in list_parts(value):
        _check_part(f"{called} {one.name}", part, float in list_parts(kind), one.metadata)


def _is_of(value: Any, kind: Any) -> bool:
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[-1] is Ellipsis:
            return all(_is_of(x, parts[0]) for x in value)
        return len(value) == len(parts) and all(map(_is_of, value, parts))
    if parts:
        return any(_is_of(value, part) for part in parts)
    # True is an int to Python
    kinds = (int, float) if kind is float else kind
    return isinstance(value, kinds) and (kind is bool or not isinstance(value, bool))


def list_parts(of: Any) -> list[Any]:
    """The parts of a tuple and of tuples in it, or of the type of such.

    >>> list_parts((1, (2, 3))), list_parts(tuple[float, ...] | None)[0], list_parts("ab")
    ([1, 2, 3], <class 'float'>, ['ab'])
    """
    parts = of if isinstance(of, tuple) else get_args(of) or None
    return [of] if parts is None else [x for part in parts for x in list_parts(part)]


def _check_part(name: str, part: Any, is_float: bool, limits: Mapping[str, Any]) -> None:
    """Check a number or a name of a setting."""
    names, least, most, span = (limits[key] for key in ("names", "least", "most", "span"))
    if isinstance(part, str):
        if names and part not in names:
            raise RegardError(f"{name} must be one of {', '.join(map(repr, names))}, got {part!r}.")
    elif part is None or isinstance(part, bool):
        return
    elif is_float:
        low, high = (float(x) for x in span[1:-1].split(","))
        # a span may leave out its lower end; it never has its upper one
        if not (low < part < high or (part == low and span.startswith("["))):
            raise RegardError(f"{name} must lie in {span}, got {part}.")
    elif part < least:
        raise RegardError(f"{name} must be at least {least}, got {part}.")
    elif most is not None and part > most:
        raise RegardError(f"{name} must be at most {most}, got {part}.")


def check_heads(num_hiddens: int, num_heads: int) -> None:
    """Check that num_hiddens is a multiple of num_heads."""
    if num_hiddens % num_heads:
        raise RegardError(f"Config num_hiddens={num_hiddens} must be a multiple of num_heads={num_heads}.")


def check_directions(num_hiddens: int, is_bidirectional: bool) -> None:
    """Check that num_hiddens is even where a GRU is bidirectional."""
    if is_bidirectional and num_hiddens % 2:
        raise RegardError(f"Config num_hiddens must be even for a GRU in both directions, got {num_hiddens}.")


def check_inputs(config: Any, of_ids: Mapping[str, Any]) -> None:
    """Check that a config sets nothing that is for `inputs` of the other kind.

    `of_ids` are settings that only ids have, each with what it is where there are none.
    """
    size, others = ("vocab_size", {"input_size": 0}) if config.inputs == "ids" else ("input_size", of_ids)
    for name, unset in others.items():
        if getattr(config, name) != unset:
            cause = f"{name}={getattr(config, name)!r:.40} has no meaning where inputs={config.inputs!r}"
            raise RegardError(f"Config {cause}: leave it out, or take other inputs.")
    if getattr(config, size) < 1:
        raise RegardError(
            f"Config {size} must be at least 1 where inputs={config.inputs!r}, got {getattr(config, size)}."
        )


def make_config(kind: type[T], entries: Mapping[str, Any]) -> T:
    """The config that `dataclasses.asdict` gave, also after JSON: lists are tuples again."""
    settings = fields(kind)  # type: ignore[arg-type]
    known = [one.name for one in settings]
    for name in entries:
        if name not in known:
            raise RegardError(f"Config has no {name!r}; it has {', '.join(known)}.")
    for one in settings:
        if one.default is MISSING and one.name not in entries:
            raise RegardError(f"Config needs {one.name!r}, got {', '.join(entries) or 'nothing'}.")
    return kind(**{name: _as_tuple(x) for name, x in entries.items()})


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(x) for x in value) if isinstance(value, list | tuple) else value
