"""Options of `regard look` that only some tasks have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.cli.options.spread import Some


@dataclass(frozen=True)
class TranslationLooking:
    """Options of looking at a translator: what it decodes, and how."""

    target: Annotated[
        str | None, Some("TEXT", "Target to look at, of a translator (teacher forcing).  [default: its own output]")
    ] = None
    beam: Annotated[int | None, Some("N", "Beam size, of a translator; 1 is greedy.  [default: 5]", min=1)] = None
