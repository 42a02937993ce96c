"""A call as people train with it: right by the project's rule, then in rows of calls, then by the host's time alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from benchmarks.cases import Contender
from benchmarks.gpu.cases import Place
from benchmarks.gpu.goal import Part, Reading
from benchmarks.gpu.kinds import Call
from benchmarks.gpu.measure import (
    ROWS,
    Clock,
    check_device,
    find_truth,
    list_contenders,
    list_rows,
    measure_errors,
    warm_up,
)
from benchmarks.measure import take_turns
from regard import attend

# an error against float64, in times of eager's own: of the output, and of gradients
TIMES, TIMES_BACK = 2.0, 3.0
# seconds that all contenders of one measure may take their turns
PATIENCE = 1.0
WORDS = {"forward": "forward", "train": "forward and backward", "host": "the host's time of a forward call"}


def measure_call(
    case: Call, place: Place, tiny: bool, repeat: int, clock: Clock, progress: Callable[[str], None]
) -> list[Part]:
    """What `goals` name; the host's time of those alone that were right before."""
    if place.compiles:
        torch.compiler.reset()
    shape = case.tiny if tiny else case.shape
    work = case.make(place, shape)
    (cotangent,) = place.draw((*shape.lead, shape.n, work.inputs["value"].shape[-1]), seed=2)
    parts: list[Part] = []
    for measure, goal in case.goals:
        trains = measure == "train"
        for x in work.inputs.values():
            x.requires_grad_(trains)
        back = cotangent if trains else None
        sides, contenders = zip(*list_contenders(work, "auto", back), strict=True)
        rows = [Reading(contender.name, side=side) for side, contender in zip(sides, contenders, strict=True)]
        if measure == "host":
            wrong = {row.contender.split(" (")[0]: row.missing for row in parts[0].rows if row.missing}
            for row in rows:
                row.missing = wrong.get(row.contender.split(" (")[0], "")
            query, key, value = (work.inputs[name] for name in ROWS)
            bare = [*work.peers.values(), partial(attend, query, key, value, **work.terms)]
            contenders = tuple(Contender(row.contender, call) for row, call in zip(rows, bare, strict=True))
            with torch.no_grad():
                for row, contender in zip(rows, contenders, strict=True):
                    if not row.missing:
                        clock.time_host(contender.call)
                take_turns(contenders, rows, 5, clock.time_host, progress, PATIENCE)
        else:
            progress("what is right")
            slices = list_rows(replace(case, trains=True), shape, work)
            truth = find_truth(work, slices, back, torch.float64)
            own = find_truth(work, slices, back, case.dtype)
            judge = partial(measure_errors, truth=truth, rows=[slice(None)])
            limits = {name: error * (TIMES if name == "out" else TIMES_BACK) for name, error in judge(own).items()}
            del own
            warm_up(case, contenders, rows, clock, judge, limits, progress)
            del judge, truth
            take_turns(contenders, rows, repeat, clock.pace, progress, PATIENCE)
        if clock.on_device:
            check_device(case.name)
        title = case.describe(shape).removesuffix("forward") + WORDS[measure]
        parts.append(Part(f"{case.name}:{measure}", title, goal, rows))
    return parts
