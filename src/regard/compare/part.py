"""A part of the comparison: how it is measured, and how its numbers are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.compare.kinds import Kind
from regard.compare.registry import PARTS, list_parts
from regard.compare.report.figures import Draw
from regard.compare.rows import Numbers
from regard.compare.settings import Advance, Settings
from regard.core import RegardError
from regard.core.names import import_plugin
from regard.plugins import load


@dataclass(frozen=True)
class Listing:
    """A table of texts: a cell of two lines is what the textbooks say above what was measured."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of the textbooks' table, by kind.

    `note` goes below the table, `clause` into the first sentence there; `claim` tells convolution and recurrence apart.
    """

    name: str
    cells: Mapping[str, str]
    note: str = ""
    clause: str = ""
    claim: str | None = None


@dataclass(frozen=True)
class Part:
    """A part, all of it: the registry knows where it is, and all else asks here.

    `measure(settings, advance, kinds)` returns plain JSON: lists, and what else it likes. `lists` are those that must
    be there, and the fields that each of their entries has: one that ends in # is a number, in ? a number or null.
    `facts` must be there beside them, by type. `read(numbers, settings)` yields the sentences of a paragraph, `tables`
    what is printed; `pictures` draw, each with its caption as docstring. `share` is about how much of the whole time it
    takes, `quick_share` of a quick look.

    What is "counted" is the same on every machine, what is "timed" on none, and what is "learned" depends on the seed:
    all but what is timed is computed by one thread. `counts` is what is counted, in a sentence; `columns` are those of
    the textbooks' table, `list_rows(name, numbers)` is a list as the page shows it.
    """

    name: str
    title: str
    measure: Callable[[Settings, Advance, Mapping[str, Kind]], dict[str, Any]]
    lists: Mapping[str, str]
    read: Callable[[Numbers, Numbers], Iterable[str]]
    tables: Callable[[Numbers, Numbers], Iterable[Listing]] = lambda numbers, settings: ()
    pictures: tuple[Draw, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    nature: Literal["counted", "timed", "learned"] = "counted"
    share: float = 1.0
    quick_share: float = 1.0
    counts: str = ""
    columns: Callable[[Numbers], Iterable[Column]] = lambda numbers: ()
    list_rows: Callable[[str, Numbers], Sequence[Numbers]] = lambda name, numbers: numbers[name]

    def accepts(self, found: Any) -> bool:
        """Whether what was read from a file has all that the report reads."""
        if not isinstance(found, Mapping) or not all(isinstance(found.get(key), of) for key, of in self.facts.items()):
            return False
        kinds: dict[str, Any] = {"#": int | float, "?": int | float | None}
        for name, fields in self.lists.items():
            rows = found.get(name)
            if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
                return False
            for text in fields.split():
                key, kind = text.rstrip("#?"), kinds.get(text[-1], object)
                if not all(key in row and isinstance(row[key], kind) for row in rows):
                    return False
        return True


def find_part(name: str) -> Part:
    """The part of that name.

    >>> find_part("steps").title
    'Sequential steps'
    """
    parts = list_parts()
    if name not in parts:
        raise RegardError(
            f"no part is called {name[:40]!r}: regard has {', '.join(parts)}; install the package that has it."
        )
    if name in PARTS:
        part: Part = load(PARTS[name])
    else:
        must = "must be a Part of that name"
        part = import_plugin("compare", name, parts[name], must, lambda name, x: isinstance(x, Part) and x.name == name)
    return part
