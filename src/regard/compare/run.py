"""All parts of a comparison, one after the other; what is done is kept."""

from __future__ import annotations

import os
import pathlib
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from regard.compare.comparison import Comparison, describe_machine
from regard.compare.kinds import KINDS, Kind
from regard.compare.measure.cost import measure_cost
from regard.compare.measure.digits import measure_digits
from regard.compare.measure.operations import measure_operations
from regard.compare.measure.paths import measure_paths
from regard.compare.measure.solve import measure_order, measure_recall
from regard.compare.measure.steps import measure_steps
from regard.compare.settings import Advance, Settings
from regard.core import RegardError
from regard.views.sheet import write_file

Measure = Callable[[Settings, Advance, Mapping[str, Kind]], dict[str, Any]]
# a function of its part, and about how much of the whole time it takes
MEASURES: dict[str, tuple[Measure, float]] = {
    "operations": (measure_operations, 3),
    "steps": (measure_steps, 3),
    "paths": (measure_paths, 2),
    "cost": (measure_cost, 35),
    "recall": (measure_recall, 32),
    "order": (measure_order, 13),
    "digits": (measure_digits, 12),
}
# the same of a quick look
QUICK_SHARES = {"operations": 15, "steps": 3, "paths": 3, "cost": 14, "recall": 45, "order": 8, "digits": 12}


def measure(
    settings: Settings | None = None,
    kinds: Mapping[str, Kind] = KINDS,
    *,
    keep: str | os.PathLike[str] | None = None,
    on_progress: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Measure every part of `settings`, for each kind of layer.

    >>> found = measure(Settings(parts=("paths",), widths=(8, 12, 16)).quicken())
    >>> [row["length"] for row in found.parts["paths"]["rows"] if row["kind"] == "attention"][:3]
    [1, 1, 1]

    With `keep`, the name of a .json file, each part is written there when it is done, and parts that are found there,
    of the same settings on the same machine, are not measured again. `on_progress` is told the part and how much of all
    is done, from 0 to 1.
    """
    settings = Settings() if settings is None else settings
    check_device(settings.device)
    for name, kind in kinds.items():
        if kind.name != name:
            raise RegardError(f"kinds must be by their names: {name!r} is the key of {kind.name!r}.")
    found = _begin(settings, kinds)
    place = None if keep is None else pathlib.Path(keep)
    if place is not None:
        found = find_kept(place, settings, kinds) or found
        # where nothing can be written, nothing is measured in vain
        write_file(place, found.to_json())
    shares = {part: QUICK_SHARES[part] if settings.is_quick else MEASURES[part][1] for part in settings.parts}
    whole, done, begun = sum(shares.values()), 0.0, time.monotonic()
    for part, share in shares.items():
        run = MEASURES[part][0]
        if part not in found.parts:

            def advance(inner: float, part: str = part, share: float = share, done: float = done) -> None:
                if on_progress is not None:
                    on_progress(part, (done + min(max(inner, 0.0), 1.0) * share) / whole)

            advance(0.0)
            given = settings
            if settings.seconds is not None:
                # its share of the time that is left: what one part does not need, the others have
                rest = settings.seconds - (time.monotonic() - begun)
                given = replace(settings, seconds=max(rest * share / (whole - done), 1e-3))
            made = run(given, advance, kinds)
            found = Comparison(found.settings, found.machine, {**found.parts, part: made})
            if place is not None:
                write_file(place, found.to_json())
        done += share
    if on_progress is not None:
        on_progress("", 1.0)
    return found


def check_device(device: str) -> None:
    """Complain of a device that is not there, or has no clock of ours."""
    try:
        if torch.device(device).type not in ("cpu", "cuda"):
            raise RuntimeError("it is neither cpu nor cuda")
        torch.empty(1, device=device)
    # torch says it in one of many ways
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = textwrap.shorten(str(error).strip().splitlines()[0].split(". ")[0], 90, placeholder=" …")
        raise RegardError(f"device {device!r} cannot be used ({reason}): take cpu, or see what torch finds.") from None


def _begin(settings: Settings, kinds: Mapping[str, Kind]) -> Comparison:
    return Comparison({**settings.to_dict(), "kinds": list(kinds)}, describe_machine(settings.device), {})


def find_kept(keep: str | os.PathLike[str], settings: Settings, kinds: Mapping[str, Kind] = KINDS) -> Comparison | None:
    """What `measure` left there when it was stopped, unless it is damaged or of other settings or another machine."""
    place = pathlib.Path(keep)
    if not place.exists():
        return None
    try:
        kept = Comparison.load(place)
    except RegardError:
        # it would be measured anew all the same
        return None
    fresh = _begin(settings, kinds)
    return kept if (kept.settings, kept.machine) == (fresh.settings, fresh.machine) else None
