"""Scores and weighers by name, as settings, files and command lines spell them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from regard.core.errors import RegardError, plain
from regard.plugins import AND, find_plugins, load

T = TypeVar("T")

# functions of torch.nn.functional
ACTIVATIONS = ("relu", "gelu", "silu")


def import_plugin(kind: str, name: str, reference: str, must: str, fits: Callable[[str, Any], bool]) -> Any:
    """Import what another package declares as an entry point `regard.<kind>`, if it `fits` its name.

    What is wrong with it is said in a line, with what it `must` be where it does not fit.
    """
    if AND in reference:
        raise RegardError(
            f"entry point regard.{kind} {name} is declared by several packages, as {reference}: remove all but one."
        )
    try:
        found = load(reference)
    # whatever a package does when it is imported
    except Exception as error:
        cause = plain(str(error) or type(error).__name__)
        raise refuse_plugin(kind, name, reference, f"cannot be imported ({cause})") from error
    if not fits(name, found):
        raise refuse_plugin(kind, name, reference, must)
    return found


def refuse_plugin(kind: str, name: str, reference: str, why: str) -> RegardError:
    """The error that says what is wrong with an entry point of another package."""
    where = f"entry point regard.{kind} {name}={reference}"
    return RegardError(f"{where} {why}: mend or remove the package that declares it.")


class Named(Mapping[str, type[T]]):
    """A registry: the classes of a room by name in lower case, then those of other packages (entry points).

    >>> from regard.score import SCORES
    >>> "additive" in SCORES, SCORES["additive"].__name__
    (True, 'Additive')

    A class is imported when it is asked for, and packages are looked through for a name that is not the room's own.
    """

    def __init__(self, room: str, contract: str, own: Iterable[str]) -> None:
        self.room, self.contract = room, contract
        self.own = {name.lower(): f"regard.{room}:{name}" for name in own}

    @property
    def plugins(self) -> dict[str, str]:
        """The entry points of other packages, "module:Class" by name."""
        return find_plugins(f"{self.room}s")

    def __getitem__(self, name: str) -> type[T]:
        if name in self.own:
            found: type[T] = load(self.own[name])
            return found
        contract = load(f"regard.core:{self.contract}")
        must = f"must be a class of {self.contract}, a contract of regard.core"
        found = import_plugin(
            f"{self.room}s",
            name,
            self.plugins[name],
            must,
            lambda _, x: isinstance(x, type) and issubclass(x, contract),
        )
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        for name in self.own.keys() & self.plugins.keys():
            why = f"must have another name, which no {self.room} of regard has"
            raise refuse_plugin(f"{self.room}s", name, self.plugins[name], why)
        yield from (*self.own, *sorted(self.plugins))

    def __bool__(self) -> bool:
        # not by their number, for which packages would be looked through
        return True

    def __len__(self) -> int:
        return len(self.own | self.plugins)
