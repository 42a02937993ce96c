"""A part of the comparison of one's own: how many numbers each kind of layer learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from regard.compare import Listing, Part, count_parameters
from regard.compare.report.cells import name_kind


def measure_parameters(settings: Any, advance: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of every kind at every width."""
    shapes = [replace(settings.dims, width=width) for width in settings.widths]
    rows = [
        {"kind": name, "d": dims.width, "numbers": count_parameters(kind, dims)}
        for name, kind in kinds.items()
        for dims in shapes
    ]
    advance(1.0)
    return {"rows": rows}


def list_parameters(part: Mapping[str, Any], settings: Any) -> Iterator[Listing]:
    """A row for each kind and width."""
    rows = tuple((name_kind(row["kind"]), str(row["d"]), f"{row['numbers']:,}") for row in part["rows"])
    yield Listing("Numbers that a layer learns", ("layer", "d", "numbers"), rows)


def read_parameters(part: Mapping[str, Any], settings: Any) -> Iterator[str]:
    """Who has the most, in a sentence."""
    most = max(part["rows"], key=lambda row: row["numbers"])
    yield f"The most are learned by {name_kind(most['kind'])}: {most['numbers']:,} at d = {most['d']}."


PARAMETERS = Part(
    "parameters",
    title="Parameters",
    measure=measure_parameters,
    lists={"rows": "kind d# numbers#"},
    tables=list_parameters,
    read=read_parameters,
)
