"""Options of `regard look` that only some tasks have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.cli.options.spread import Some


@dataclass(frozen=True)
class TranslationLooking:
    """What a translator is to say, or how it finds what it says."""

    target: Annotated[
        str | None, Some("TEXT", "Target to look at, of a translator (teacher forcing).  [default: its own output]")
    ] = None
    beam: Annotated[int | None, Some("N", "Beam size, of a translator; 1 is greedy.  [default: 5]", min=1)] = None
