"""Time and memory of each kind against the length, forward and backward, one sequence at once and many."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from regard.compare.kinds import KINDS, Kind, count_parameters, match_attention
from regard.compare.meters.curves import fit_power, list_crossings, list_leads
from regard.compare.meters.spending import WHY, Budget, find_free, find_peak, time_calls
from regard.compare.rows import Numbers, group, take
from regard.compare.settings import Advance, Dimensions, Settings
from regard.layers.attention import Attention

PASSES = ("forward", "training")
# a call that is expected to take longer is skipped, and so many seconds go to a group of contenders
LIMIT, BUDGET = 30.0, 2.0
QUICK_LIMIT, QUICK_BUDGET = 0.1, 0.05
# where all lengths are longer, this one tells what to expect of them
PROBE = 512
# of the free memory, what one call may take
SHARE = 0.5

Row = dict[str, Any]


def measure_cost(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Seconds and bytes of every kind at every length, how they grow, and where they cross.

    >>> found = measure_cost(Settings(lengths=(8, 16, 32), batches=(1,), is_quick=True), lambda share: None)
    >>> [row["bytes"] for row in found["rows"] if row["kind"] == "conv"]
    [2048, 4096, 8192, 51208, 53256, 57352]

    `training` is forward and backward, with gradients of the sum for the input and all weights. What would take too
    long or too much memory, by what shorter lengths took, is in `skipped` with the reason, and so is what
    `settings.seconds` has no time for.
    """
    device = torch.device(settings.device)
    shapes = {name: match_attention(kind, settings.dims, settings) for name, kind in kinds.items()}
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        layers = {name: _build(kind, shapes[name], device) for name, kind in kinds.items()}
        rows, skipped = list[Row](), list[Row]()
        # the longest take nearly all the time
        lengths = sorted({*settings.lengths, min(settings.lengths[0], PROBE)})
        # where time is short, it is the longest that are left out, of every batch and pass alike
        todo = [(batch, which, n) for n in lengths for batch in settings.batches for which in PASSES]
        work = [n * (1 + batch) * (1 + 2 * PASSES.index(which)) for batch, which, n in todo]
        budget = Budget(settings.seconds)
        for at, (batch, which, n) in enumerate(todo):
            advance(sum(work[:at]) / sum(work))
            point = {"n": n, "batch": batch, "pass": which}
            if not budget.allows():
                skipped += [{"kind": name, **point, "why": WHY} for name in kinds]
                continue
            calls, sizes = dict[str, Callable[[], object]](), dict[str, int]()
            for name, kind in kinds.items():
                before = take(rows, kind=name, batch=batch, **{"pass": which})
                if why := _refuse(n, before, kind, settings, find_free(device)):
                    skipped.append({"kind": name, **point, "why": why})
                    continue
                call = _prepare(layers[name], (batch, n, shapes[name].width), which, device)
                try:
                    if device.type == "cuda":
                        # libraries allocate on the first call what they keep
                        call()
                    sizes[name] = find_peak(call, device)
                except RuntimeError as problem:
                    # on the CPU torch says so in words alone
                    if not isinstance(problem, torch.OutOfMemoryError) and "can't allocate memory" not in str(problem):
                        raise
                    skipped.append({"kind": name, **point, "why": "there was not enough memory"})
                    continue
                calls[name] = call
            for name, timing in time_calls(calls, device, QUICK_BUDGET if settings.is_quick else BUDGET).items():
                rows.append({"kind": name, **point, **timing, "bytes": sizes[name]})
    order = list(kinds)
    for found in (rows, skipped):
        # what was measured only to know what to expect is not what was asked for
        found[:] = [row for row in found if row["n"] in settings.lengths]
        found.sort(key=lambda row: (order.index(row["kind"]), row["batch"], PASSES.index(row["pass"]), row["n"]))
    crossings = list_crossings(rows, kinds, shapes)
    advance(1.0)
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or device.type,
        "threads": torch.get_num_threads(),
        "parameters": {name: count_parameters(kind, shapes[name]) for name, kind in kinds.items()},
        "widths": {name: shape.width for name, shape in shapes.items()},
        "rows": rows,
        "skipped": skipped,
        "fits": list_fits(rows),
        "crossings": crossings,
        "leads": list_leads(crossings),
    }


def list_fits(rows: Sequence[Row]) -> list[Row]:
    """How seconds and bytes grow with n, over the upper half of the lengths: below, most is what any length costs."""
    fits = []
    for (name, batch, which), points in group(rows, "kind", "batch", "pass").items():
        upper = sorted(points, key=lambda row: int(row["n"]))[-max(-(-len(points) // 2), 3) :]
        lengths = [row["n"] for row in upper]
        for of in ("seconds", "bytes") if len(upper) >= 3 else ():
            fit = fit_power([row[of] for row in upper], n=lengths)
            case = {"kind": name, "batch": batch, "pass": which, "of": of, "from": lengths[0], "to": lengths[-1]}
            fits.append({**case, "exponent": fit.exponents["n"], "interval": fit.intervals["n"]})
    return fits


def extrapolate(lengths: Sequence[int], values: Sequence[float], n: int, power: float) -> float | None:
    """What to expect at n: what any length costs, and what grows with the power of n; None where nothing is known.

    >>> extrapolate([2, 4], [14.0, 26.0], 8, power=2)
    74.0
    """
    if not lengths:
        return None
    # the last two lengths tell the two apart; with one alone all is taken to grow
    (near, before), (far, value) = [(0, 0.0), *zip(lengths, values, strict=True)][-2:]
    # what shrinks is noise
    slope = max(value - before, 0) / (far**power - near**power)
    return float(value + slope * (n**power - far**power))


def _refuse(n: int, before: Sequence[Numbers], kind: Kind, settings: Settings, free: int | None) -> str:
    """Why this length is not measured; empty if it is."""
    lengths, power = [row["n"] for row in before], kind.powers["n"]
    limit = QUICK_LIMIT if settings.is_quick else LIMIT
    # the fastest: a machine that was busy must not look like growth
    seconds = extrapolate(lengths, [row["fastest"] for row in before], n, power)
    if seconds and seconds > limit:
        return f"a call would take about {seconds:.2g} s, and the limit is {limit:g} s"
    size = extrapolate(lengths, [row["bytes"] for row in before], n, power)
    if size and free and size > SHARE * free:
        return f"a call would take about {size / 2**30:.2g} GiB, and {free / 2**30:.2g} GiB are free"
    return ""


def _build(kind: Kind, shape: Dimensions, device: torch.device) -> nn.Module:
    layer = kind.build(shape).to(device)
    for part in layer.modules():
        if isinstance(part, Attention):
            # what a look at the weights would need is not what attention needs
            part.shows_weights = False
    return layer


def _prepare(layer: nn.Module, shape: tuple[int, ...], which: str, device: torch.device) -> Callable[[], object]:
    """A pass over new rows."""
    layer.train(which == "training")
    rows = torch.randn(shape, device=device)
    if which == "forward":
        return torch.no_grad()(lambda: layer(rows))
    wanted = [rows.requires_grad_(), *layer.parameters()]
    return lambda: torch.autograd.grad(layer(rows).sum(), wanted)
