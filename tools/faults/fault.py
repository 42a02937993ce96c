"""What a seeded fault is."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

PACKAGE = pathlib.PurePosixPath("src/regard")


@dataclass(frozen=True)
class Fault:
    """In `file` of the package, `old` becomes `new`; `what` says what is then wrong."""

    file: str
    old: str
    new: str
    what: str

    @property
    def path(self) -> pathlib.PurePosixPath:
        """The file, seen from the root of the project."""
        return PACKAGE / self.file

    def plant(self, source: str) -> str:
        """The source with the fault in it. A text that is not there exactly once means that the fault has aged."""
        found = source.count(self.old)
        if found != 1:
            raise ValueError(f"{self.path}: the text of '{self.what}' was found {found} times, must be once.")
        return source.replace(self.old, self.new)
