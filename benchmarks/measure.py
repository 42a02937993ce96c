"""Time in this process, contenders taking turns; memory in a fresh process for each of them."""

from __future__ import annotations

import gc
import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks.cases import Case, Contender, Result

# float32 sums in another order
TOLERANCE = 1e-3


@dataclass
class Row:
    """One contender of one case: seconds of each call and bytes of extra memory, or the reason why there are none."""

    contender: str
    seconds: list[float] = field(default_factory=list)
    extra: int | None = None
    missing: str = ""
    wrong: bool = False
    # so slow that the one call already measured has to do
    once: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a share of the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median


def time_case(case: Case, n: int, threads: int, repeat: int, progress: Callable[[str], None]) -> list[Row]:
    """Every contender of a case on the CPU."""
    torch.set_num_threads(case.threads or threads)
    contenders = case.make(n)
    rows = [Row(contender.name) for contender in contenders]
    _warm_up(contenders, rows, progress)
    take_turns(contenders, rows, repeat, lambda call: [_time(call, case.loops)], progress)
    return rows


def take_turns(
    contenders: Sequence[Contender],
    rows: Sequence[Row],
    repeat: int,
    clock: Callable[[Callable[[], Result]], list[float]],
    progress: Callable[[str], None],
    limit: float = float("inf"),
) -> None:
    """Every contender once per round, so that what the machine does meanwhile meets all of them alike.

    Rounds end before `repeat` once they took `limit` seconds and there were three.
    """
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    try:
        for turn in range(repeat):
            if turn >= 3 and time.perf_counter() - start > limit:
                break
            # back and forth: nobody always runs after the same neighbour
            order = range(len(rows)) if turn % 2 == 0 else reversed(range(len(rows)))
            for at in order:
                if rows[at].missing or rows[at].once:
                    continue
                progress(f"{rows[at].contender}, {turn + 1} of {repeat}")
                try:
                    rows[at].seconds += clock(contenders[at].call)
                except Exception as problem:
                    rows[at].missing = one_line(problem)
    finally:
        gc.enable()


def _time(call: Callable[[], Result], loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return (time.perf_counter() - start) / loops


def _warm_up(contenders: Sequence[Contender], rows: Sequence[Row], progress: Callable[[str], None]) -> None:
    """Run everyone once, and see that all who claim the same result have it: a fast wrong answer is no answer."""
    expected: Result | None = None
    for contender, row in zip(contenders, rows, strict=True):
        progress(f"{contender.name}, first call")
        try:
            found = contender.call()
            if contender.compiles:
                # a compiler may come back to its work on the second call
                contender.call()
        except Exception as problem:
            row.missing = one_line(problem)
            continue
        if not contender.same:
            continue
        if expected is None:
            expected = found
        elif (apart := _distance(expected, found)) > TOLERANCE:
            row.missing = f"wrong: differs from the first by {apart:.1e}"
            row.wrong = True


def one_line(problem: BaseException) -> str:
    """What went wrong, short enough for a table."""
    lines = str(problem).strip().splitlines()
    text = lines[0] if lines else ""
    return f"{type(problem).__name__}: {text}"[:90] if text else type(problem).__name__


def _distance(expected: Result, found: Result) -> float:
    """The largest difference, relative to the largest number."""
    pairs = [(expected, found)] if isinstance(expected, Tensor) else zip(expected, found, strict=True)
    apart = 0.0
    for one, other in pairs:
        assert isinstance(one, Tensor)
        assert isinstance(other, Tensor)
        gap = (one - other).abs().max() / one.abs().max().clamp(min=1e-30)
        # NaN compares as neither more nor less: count it as apart
        apart = max(apart, gap.item() if gap.isfinite() else float("inf"))
    return apart


def weigh_contender(case: Case, at: int, n: int, threads: int) -> int | None:
    """Bytes that contender number `at` takes beyond its inputs, measured by `benchmarks.peak`; None if it broke off."""
    root = pathlib.Path(__file__).parents[1]
    command = [sys.executable, "-m", "benchmarks.peak", case.name, str(at), str(n), str(case.threads or threads)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    extra: int | None = json.loads(done.stdout.splitlines()[-1])
    return extra
