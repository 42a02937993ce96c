"""What a seeded fault is."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

PACKAGE = pathlib.PurePosixPath("src/regard")


class SeedError(Exception):
    """What makes a whole count worthless."""


@dataclass(frozen=True)
class Fault:
    """In `file` of the package, `old` becomes `new`; `what` says what is then wrong, and is no other's."""

    file: str
    old: str
    new: str
    what: str

    @property
    def path(self) -> pathlib.PurePosixPath:
        """The file, seen from the root of the project."""
        return PACKAGE / self.file

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]

    @property
    def needs_browser(self) -> bool:
        """Whether it lies in a script of a page, which nothing but a browser runs."""
        return self.path.suffix == ".js"

    def plant(self, source: str) -> str:
        """The source with the fault in it. A text that is not there exactly once means that the fault has aged."""
        found = source.count(self.old)
        if found != 1:
            raise ValueError(f"{self.path}: the text of '{self.what}' was found {found} times, must be once.")
        return source.replace(self.old, self.new)
