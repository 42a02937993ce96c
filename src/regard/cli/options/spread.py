"""Options that several commands share, declared as the fields of dataclasses."""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from regard.core import RegardError


def Some(metavar: str | None, help: str, *names: str, **limits: Any) -> Any:  # noqa: N802
    """An option whose default depends on other things, and is said in its help."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **limits)


def spread(command: Callable[..., None], said: Mapping[str, str] | None = None) -> Callable[..., None]:
    """Turn the dataclasses that a command takes into options, one for each field; it is called with the dataclasses.

    What their help leaves open, as {lr}, `said` has for this command.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: int = 3
    >>> def draw(name: str, size: Size) -> None:
    ...     print(name, size)
    >>> spread(draw)(name="box", width=5)
    box Size(width=5)
    >>> list(inspect.signature(spread(draw)).parameters)
    ['name', 'width']
    """
    shown, groups = [], {}
    hints = get_type_hints(command, include_extras=True)
    for name, given in inspect.signature(command).parameters.items():
        kind: Any = hints[name]
        if is_dataclass(kind):
            inner = groups[name] = get_type_hints(kind, include_extras=True)
            shown += [_show(field.name, field.default, inner[field.name], said or {}) for field in fields(kind)]
        else:
            shown.append(_show(name, given.default, kind, said or {}))

    _check_names(one.name for one in shown)

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, inner in groups.items():
            given[name] = hints[name](**{field: given.pop(field) for field in inner})
        command(**given)

    # what typer reads
    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in shown}
    return call


def _show(name: str, default: Any, kind: Any, said: Mapping[str, str]) -> inspect.Parameter:
    for option in getattr(kind, "__metadata__", ()):
        if "{" in (option.help or ""):
            mine = copy.copy(option)
            mine.help = option.help.format(**said)
            kind = Annotated[kind.__origin__, mine]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def join_options(kinds: Iterable[type[Any]]) -> Any:
    """A dataclass with the options of all these, each once.

    >>> from regard.cli.options.scoring import LabelScoring, TagScoring
    >>> [x.name for x in fields(join_options([TagScoring, LabelScoring]))]
    ['output', 'column', 'columns', 'keys', 'header']
    """
    found: dict[str, Any] = {}
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        made = {x.name: (x.name, hints[x.name], field(default=x.default)) for x in fields(kind)}
        # an option of several tasks means the same to all of them
        _check_names([*found, *(name for name in made if name not in found or not _is_same(made[name], found[name]))])
        found |= made
    return make_dataclass("Options", found.values(), frozen=True)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two fields are the same option: of one type, with one default and the same words."""
    said = [[vars(option) for option in getattr(hint, "__metadata__", ())] for _, hint, _ in (one, other)]
    kinds = [getattr(hint, "__origin__", hint) for _, hint, _ in (one, other)]
    return said[0] == said[1] and kinds[0] == kinds[1] and bool(one[2].default == other[2].default)


def _check_names(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            option = name.replace("_", "-")
            raise RegardError(f"a command would have two options --{option}: name that setting of a task otherwise.")


def drop_none(entries: dict[str, Any]) -> dict[str, Any]:
    """The entries that are not None."""
    return {name: value for name, value in entries.items() if value is not None}


def read_changes(given: list[str] | None) -> dict[str, Any]:
    """Parse each KEY=VALUE of --set: a number, true, false, null or a word."""
    return dict(_read_change(text) for text in given or [])


def _read_change(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise typer.BadParameter(f"--set must be KEY=VALUE, got {text!r}")
    try:
        return key.strip(), json.loads(value)
    except (ValueError, RecursionError):
        return key.strip(), value.strip()
