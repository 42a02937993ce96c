"""Right first, then time by CUDA events and the peak of memory, contenders taking turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from benchmarks.cases import Contender
from benchmarks.gpu.cases import Case, Place, Shape, Work
from benchmarks.gpu.goal import Reading
from benchmarks.measure import one_line, take_turns
from regard import attend, explain

# the most that ‖found − truth‖ / ‖truth‖ may be; scores that eager code rounds to bfloat16 come near
TOLERANCES = {torch.bfloat16: 5e-2, torch.float32: 1e-3, torch.float64: 1e-9}
# several times the L2 cache, which is emptied by writing it
FLUSH = 2**28
# so often before the first call, about a millisecond: the host gets ahead of the device
AHEAD = 16
# numbers that the truth may hold at a time, in each of its few arrays
ROOM = 2**28
# seconds: how long a case may take its turns, how slow a call may be to take any
PATIENCE, SLOW = 3.0, 2.0
# seconds of short calls in one turn
QUEUE = 0.01

Results = dict[str, Tensor]
ROWS = ("query", "key", "value")


class DeviceLostError(Exception):
    """The device answers no more: nothing measured after this means anything."""


class Clock:
    """Seconds of calls by events on the device, each with a cold cache; by the host's clock where there is none."""

    def __init__(self, device: str) -> None:
        self.on_device = torch.device(device).type == "cuda"
        self.scratch = torch.empty(FLUSH, dtype=torch.int8, device=device) if self.on_device else None

    def time(self, call: Callable[[], object], count: int = 1) -> list[float]:
        if self.scratch is None:
            return [self._time_here(call) for _ in range(count)]
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for _ in range(AHEAD):
            self.scratch.zero_()
        for start, stop in marks:
            self.scratch.zero_()
            start.record()
            call()
            stop.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(stop) / 1000 for start, stop in marks]

    def take_turn(self, call: Callable[[], object]) -> list[float]:
        """One call, or some short ones in a row."""
        first = self.time(call)
        return first + self.time(call, min(int(QUEUE / first[0]), 10)) if first[0] < QUEUE else first

    def pace(self, call: Callable[[], object]) -> list[float]:
        """Seconds a call, of as many in a row as fit `QUEUE`, as in training: the slower of host and device counts."""
        first = self._time_row(call, 3)
        return [first if first > QUEUE / 3 else self._time_row(call, min(int(QUEUE / first), 100))]

    def time_host(self, call: Callable[[], object]) -> list[float]:
        """Seconds of the host alone, of ten calls one by one."""
        self.wait()
        found = [self._time_here(call) for _ in range(10)]
        self.wait()
        return found

    def wait(self) -> None:
        """For all that the device has to do."""
        if self.on_device:
            torch.cuda.synchronize()

    def _time_row(self, call: Callable[[], object], count: int) -> float:
        self.wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        self.wait()
        return (time.perf_counter() - start) / count

    def _time_here(self, call: Callable[[], object]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def weigh(self, call: Callable[[], object]) -> tuple[float, int | None]:
        """Seconds of one call, and the most bytes it held beyond those held before it, its result included."""
        if not self.on_device:
            return self._time_here(call), None
        gc.collect()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        (seconds,) = self.time(call)
        return seconds, torch.cuda.max_memory_allocated() - before


def run(call: Callable[[], Tensor], inputs: Results, cotangent: Tensor | None) -> Results:
    """The output and, where there is a gradient of it, those of the inputs, as values: nothing piles up."""
    if cotangent is None:
        with torch.no_grad():
            return {"out": call()}
    out = call()
    return {
        "out": out.detach(),
        **dict(zip(inputs, torch.autograd.grad(out, list(inputs.values()), cotangent), strict=True)),
    }


def list_rows(case: Case, shape: Shape, work: Work) -> list[slice]:
    """The queries of which the truth is found: in training all, some at a time; else a few places far apart."""
    step = min(max(ROOM // work.per_row, 1), shape.n)
    if case.trains:
        return [slice(start, min(start + step, shape.n)) for start in range(0, shape.n, step)]
    step = min(step, max(shape.n // 4, 1), 64)
    starts = sorted({0, shape.n // 3, 2 * shape.n // 3, shape.n - step})
    return [slice(start, start + step) for start in starts]


def find_truth(
    work: Work, rows: Sequence[slice], cotangent: Tensor | None, dtype: torch.dtype | None = None
) -> Results:
    """What is right: by the definition in a higher dtype, `rows` after `rows`. The output has these rows alone.

    In the `dtype` of the inputs themselves it is what eager code makes of them.
    """
    low = work.inputs["query"].dtype
    high = dtype or (torch.float32 if low.itemsize < 4 else torch.float64)
    wide = torch.promote_types(high, torch.float32)
    inputs = {name: x.detach().to(high).requires_grad_(cotangent is not None) for name, x in work.inputs.items()}
    outs: list[Tensor] = []
    sums: Results = {}
    for part in rows:
        back = None if cotangent is None else cotangent[..., part, :].to(high)
        found = run(partial(work.plain, part, *inputs.values()), inputs, back)
        outs.append(found.pop("out"))
        for name, gradient in found.items():
            sums[name] = sums[name].add_(gradient) if name in sums else gradient.to(wide, copy=True)
    return {"out": torch.cat(outs, -2), **sums}


def measure_errors(found: Results, truth: Results, rows: Sequence[slice]) -> dict[str, float]:
    """‖found − truth‖ / ‖truth‖ of each result."""
    found = {**found, "out": torch.cat([found["out"][..., part, :] for part in rows], -2)}
    errors = {}
    for name, result in found.items():
        exact = truth[name]
        gap = torch.linalg.vector_norm(result.to(exact.dtype) - exact) / torch.linalg.vector_norm(exact)
        errors[name] = gap.item()
    return errors


def list_contenders(work: Work, backend: str, cotangent: Tensor | None) -> Iterator[tuple[str, Contender]]:
    """The peers, our backend, and what the planner takes, each with its side; the latter alone where it is ours."""
    rows = [work.inputs[name] for name in ROWS]

    def make(name: str, call: Callable[[], Tensor]) -> Contender:
        is_same = name not in work.rough
        inputs = work.inputs if is_same else dict(zip(ROWS, rows, strict=True))
        return Contender(name, partial(run, call, inputs, cotangent), same=is_same)  # type: ignore[arg-type]

    for name, call in work.peers.items():
        yield "peer", make(name, call)
    if backend != "auto":
        yield "ours", make(f"regard {backend}", partial(attend, *rows, **work.terms, backend=backend))
    with torch.set_grad_enabled(cotangent is not None):
        taken = explain(*rows, **work.terms).backend
    yield "ours" if backend == "auto" else "auto", make(f"regard auto ({taken})", partial(attend, *rows, **work.terms))


def prepare(case: Case, place: Place, shape: Shape) -> tuple[Work, Tensor | None]:
    """The case on its tensors, and a gradient of its output for the backward pass."""
    work = case.make(place, shape)
    if not case.trains:
        return work, None
    for x in work.inputs.values():
        x.requires_grad_()
    (cotangent,) = place.draw((*shape.lead, shape.n, work.inputs["value"].shape[-1]), seed=2)
    return work, cotangent


def measure_case(
    case: Case, place: Place, shape: Shape, backend: str, repeat: int, clock: Clock, progress: Callable[[str], None]
) -> list[Reading]:
    """Every contender checked against the truth; those that are right are timed."""
    if place.compiles:
        # each case compiles for itself: together they would run into the limit on compilations
        torch.compiler.reset()
    work, cotangent = prepare(case, place, shape)
    sides, contenders = zip(*list_contenders(work, backend, cotangent), strict=True)
    rows = [Reading(contender.name, side=side) for side, contender in zip(sides, contenders, strict=True)]
    progress("what is right")
    parts = list_rows(case, shape, work)
    truth = find_truth(work, parts, cotangent)
    judge = partial(measure_errors, truth=truth, rows=parts)
    warm_up(case, contenders, rows, clock, judge, dict.fromkeys(truth, TOLERANCES[case.dtype]), progress)
    # what is right has done its part, and takes room
    del judge, truth
    take_turns(contenders, rows, repeat, clock.take_turn, progress, PATIENCE)
    if clock.on_device:
        check_device(case.name)
    return rows


def warm_up(
    case: Case, contenders: Sequence[Contender], rows: Sequence[Reading], clock: Clock,
    judge: Callable[[Results], dict[str, float]], limits: dict[str, float], progress: Callable[[str], None],
) -> None:  # fmt: skip
    """Everyone's first calls, held to the `limits` of their errors."""
    for contender, row in zip(contenders, rows, strict=True):
        progress(f"{row.contender}, first call")
        try:
            _warm_up(case, contender, row, clock, judge, limits)
        except Exception as problem:
            row.missing = one_line(problem)
        if row.missing and clock.on_device:
            # what a failed contender held goes back
            gc.collect()
            check_device(row.contender)
            torch.cuda.empty_cache()


def _warm_up(
    case: Case, contender: Contender, row: Reading, clock: Clock, judge: Callable[[Results], dict[str, float]],
    limits: dict[str, float],
) -> None:  # fmt: skip
    found: Results = contender.call()  # type: ignore[assignment]
    row.errors = judge(found)
    # written so that NaN is wrong
    wrong = [(error, name) for name, error in row.errors.items() if not error <= limits[name]]
    if contender.same and wrong:
        error, name = max(wrong, key=lambda item: (item[0] != item[0], item[0]))
        row.missing, row.wrong = f"wrong: {name} is off by {error:.1e}, allowed are {limits[name]:.1e}", True
        return
    if case.runs:
        row.bits = all(_are_equal(found, contender.call()) for _ in range(case.runs - 1))  # type: ignore[arg-type]
    del found
    seconds, row.extra = clock.weigh(contender.call)
    if seconds > SLOW:
        row.once, row.seconds = True, [seconds]


def _are_equal(one: Results, other: Results) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def check_device(after: str) -> None:
    """See that the device still answers: after a bad access it never does again."""
    try:
        torch.cuda.synchronize()
    except RuntimeError as problem:
        raise DeviceLostError(f"after {after}: {one_line(problem)}") from None
