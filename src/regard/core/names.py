"""Scores and weighers by name, as settings, files and command lines spell them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from regard.core.errors import RegardError, plain
from regard.plugins import AND, find_plugins, load

T = TypeVar("T")

# functions of torch.nn.functional
ACTIVATIONS = ("relu", "gelu", "silu")


def import_plugin(kind: str, name: str, reference: str) -> Any:
    """Import what another package declares as an entry point `regard.<kind>`; what goes wrong is said in a line."""
    where = f"entry point regard.{kind} {name}"
    if AND in reference:
        raise RegardError(f"{where} is declared by several packages, as {reference}: remove all but one.")
    try:
        return load(reference)
    # whatever a package does when it is imported
    except Exception as error:
        cause = plain(str(error) or type(error).__name__)
        raise RegardError(
            f"{where}={reference} cannot be imported ({cause}): mend or remove the package that declares it."
        ) from error


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
        found = import_plugin(f"{self.room}s", name, self.plugins[name])
        if not isinstance(found, type) or not issubclass(found, load(f"regard.core:{self.contract}")):
            raise RegardError(self._refuse(name, f"must be a class of {self.contract}, a contract of regard.core"))
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        for name in self.own.keys() & self.plugins.keys():
            raise RegardError(self._refuse(name, f"must have another name, which no {self.room} of regard has"))
        yield from (*self.own, *sorted(self.plugins))

    def __bool__(self) -> bool:
        # not by their number, for which packages would be looked through
        return True

    def __len__(self) -> int:
        return len(self.own | self.plugins)

    def _refuse(self, name: str, why: str) -> str:
        where = f"regard.{self.room}s {name}={self.plugins[name]}"
        return f"entry point {where} {why}: mend or remove the package that declares it."
