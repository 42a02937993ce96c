"""A part of another package: how many numbers each kind of layer learns."""

from dataclasses import replace

from regard.compare import Listing, Part, count_parameters
from regard.compare.report.cells import name_kind


def measure_parameters(settings, advance, kinds):
    sizes = [replace(settings.dims, width=width) for width in settings.widths]
    rows = [
        {"kind": name, "d": dims.width, "numbers": count_parameters(kind, dims)}
        for name, kind in kinds.items() for dims in sizes
    ]  # fmt: skip
    advance(1.0)
    return {"rows": rows}


def list_parameters(part, settings):
    rows = tuple((name_kind(row["kind"]), str(row["d"]), f"{row['numbers']:,}") for row in part["rows"])
    yield Listing("Numbers that a layer learns", ("layer", "d", "numbers"), rows)


def read_parameters(part, settings):
    most = max(part["rows"], key=lambda row: row["numbers"])
    yield f"The most are learned by {name_kind(most['kind'])}: {most['numbers']:,} at d = {most['d']}."


PARAMETERS = Part(
    "parameters", title="Parameters", measure=measure_parameters, lists={"rows": "kind d# numbers#"},
    read=read_parameters, tables=list_parameters,
)  # fmt: skip
