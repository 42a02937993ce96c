"""Milliseconds a training step of the tiny Transformer, in the loop of `regard train translate`, and where they go."""

from __future__ import annotations

import argparse
import cProfile
import datetime
import io
import pathlib
import pstats
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.page import describe_run
from regard.data.split import Split
from regard.tasks.text.translate import prepare_translator
from regard.tasks.text.translate_job import TranslateJob
from regard.tasks.training.fit import fit
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.machine import Machine
from tools.arguments import Parser, read_count, read_date

EXAMPLES = """examples:
  python -m benchmarks.gpu.steps                          the recipe of docs/results.md, some minutes
  python -m benchmarks.gpu.steps --device cpu --tiny      whether all is right, without a GPU
The status is 1 where a step takes longer than is to be reached, 2 where the command cannot run.
"""
# milliseconds a step that are to be reached on a GPU
TARGET = 20.0
# mean and deviation of the logarithms of Multi30k's lengths in BPE tokens, and of how much longer its German is
LENGTH, RATIO = (2.57, 0.31), (0.0, 0.18)


@dataclass(frozen=True)
class Size:
    """What is trained on, and how many steps are taken for what: to warm up, by the clock, in each profile."""

    pairs: int = 29000
    words: int = 9700
    places: int = 8192
    warm: int = 200
    timed: int = 300
    seen: int = 20
    asked: int = 1000


TINY = Size(400, 50, 200, 2, 3, 2, 20)


@dataclass
class Meter:
    """Stands before every step of the loop, and reads the clock, a profile and what waits for the GPU."""

    size: Size
    device: str
    seconds: float = 0.0
    # when each of the timed steps was begun: what the loop itself takes shows there without waiting for the GPU
    begun: list[float] = field(default_factory=list)
    profile: Any = None
    calls: cProfile.Profile = field(default_factory=cProfile.Profile)
    waits: Counter[str] = field(default_factory=Counter)

    @property
    def steps(self) -> int:
        """How many steps are taken in all."""
        return self.size.warm + self.size.timed + 3 * self.size.seen

    def wrap(self, step: Callable[..., None]) -> Callable[..., None]:
        """The task's step, with a look at the clock before it."""
        turns = self._take_turns()

        def stepped(*arguments: Any) -> None:
            next(turns, None)
            step(*arguments)

        return stepped

    def finish(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _take_turns(self) -> Iterator[None]:
        size, is_gpu = self.size, self.device == "cuda"
        yield from [None] * size.warm
        self.finish()
        start = time.perf_counter()
        for _ in range(size.timed):
            self.begun.append(time.perf_counter())
            yield
        self.finish()
        self.seconds = time.perf_counter() - start
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_gpu else [])]
        with profile(activities=kinds) as self.profile:
            yield from [None] * size.seen
            self.finish()
        self.calls.enable()
        yield from [None] * size.seen
        self.calls.disable()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            if is_gpu:
                torch.cuda.set_sync_debug_mode("warn")
            yield from [None] * (size.seen - 1)
            if is_gpu:
                torch.cuda.set_sync_debug_mode("default")
        for one in found:
            if "called a synchronizing" in str(one.message):
                self.waits[f"{one.filename}:{one.lineno}"] += 1
        yield


def draw_pairs(size: Size) -> list[tuple[str, str]]:
    """Sentence pairs as long as those of Multi30k, of words as unlike in frequency as words are."""
    chance = random.Random(0)

    def say(count: float) -> str:
        return " ".join(f"w{int(size.words ** chance.random())}" for _ in range(min(max(round(count), 4), 45)))

    lengths = [chance.lognormvariate(*LENGTH) for _ in range(size.pairs)]
    return [(say(x), say(x * chance.lognormvariate(*RATIO))) for x in lengths]


def train(size: Size, device: str, precision: str) -> tuple[Meter, dict[str, float]]:
    """Run the loop; what was measured on the way, and seconds of its validation and of translating, once it is over."""
    meter, pairs, seconds = Meter(size, device), draw_pairs(size), dict[str, float]()
    recipe: dict[str, Any] = {
        "lr": 0.005, "warmup": 2000, "average": 0.998, "epochs": 1000, "max_steps": meter.steps,
        "validate_every": meter.steps, "save_every": meter.steps, "seed": 1,
    }  # fmt: skip
    job = TranslateJob.default(
        "transformer", recipe=recipe, preset="tiny", source_tokens="spaces", target_tokens="spaces", is_shared=True,
        vocab_size=20000, max_tokens=size.places,
    )  # fmt: skip
    held = pairs[: size.asked]
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(pathlib.Path(place, "run"))
        task: Any = prepare_translator(job, Split(pairs, held, []), folder)
        fabric = Machine(accelerator=device, precision=precision).launch()
        task.step = meter.wrap(task.step)
        task.validate = time_call(task.validate, "validation", seconds, meter.finish)
        fit(task, folder, task.job.recipe, fabric, is_shown=False)
    said = time_call(task.translator.translate, f"translating {len(held):,} sentences", seconds, meter.finish)
    said([source for source, _ in held], beam=1, batch_size=len(held))
    return meter, seconds


def time_call(
    call: Callable[..., Any], name: str, seconds: dict[str, float], finish: Callable[[], None]
) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        finish()
        start = time.perf_counter()
        found = call(*arguments, **options)
        finish()
        seconds[name] = time.perf_counter() - start
        return found

    return timed


def show(meter: Meter, seconds: dict[str, float], rows: int) -> str:
    """What was measured, in lines."""
    size, each = meter.size, meter.seconds / meter.size.timed * 1000
    gaps = [1000 * (b - a) for a, b in zip(meter.begun, meter.begun[1:], strict=False)]
    events = meter.profile.key_averages()
    # of kernels and copies themselves: what called them has their time, too
    own = [x for x in events if x.device_type != DeviceType.CPU]
    busy = sum(x.self_device_time_total for x in own) / size.seen / 1000
    called = {x.key: x.count / size.seen for x in events if x.key.startswith("cu")}
    lines = [
        f"{each:.2f} ms a step over {size.timed} steps; from one's start to the next's {statistics.median(gaps):.2f}"
        f" ms in the middle, {max(gaps):.2f} at most; target {TARGET:.0f} ms",
        f"the GPU computes {busy:.2f} ms of a step (profiled)",
        *(f"{name}: {x:.2f} s" for name, x in seconds.items()),
        f"waits for the GPU in {size.seen - 1} steps: {sum(meter.waits.values())}",
        *(f"  {count:>5} × {place}" for place, count in meter.waits.most_common(20)),
        "calls of the driver a step: " + ", ".join(f"{name} {x:.1f}" for name, x in sorted(called.items())),
        list_calls(meter.calls, rows),
        events.table(sort_by="self_cpu_time_total", row_limit=rows, max_name_column_width=60),
    ]
    if meter.device == "cuda":
        lines.append(events.table(sort_by="self_device_time_total", row_limit=rows, max_name_column_width=60))
    return "\n".join(lines)


def list_calls(calls: cProfile.Profile, rows: int) -> str:
    """The functions of Python in which most of the time is spent, without the path to them."""
    lines = io.StringIO()
    pstats.Stats(calls, stream=lines).strip_dirs().sort_stats("tottime").print_stats(rows)
    return lines.getvalue().strip()


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks.gpu.steps", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu is there to see that all is right, not how fast")
    add("--tiny", action="store_true", help="few short batches, for the same purpose")
    add("--precision", default="32-true", metavar="NAME", help="as in regard train (default 32-true)")
    add("--rows", type=read_count, default=25, metavar="N", help="rows of the profile's tables (default 25)")
    add("--date", type=read_date, help="the date in the heading (default today)")
    options = parser.parse_args(arguments)
    options.date = options.date or datetime.date.today().isoformat()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device. To see that all is right: --device cpu --tiny")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    print(describe_run(options.device, options.date, "python -m benchmarks.gpu.steps"), flush=True)
    meter, seconds = train(TINY if options.tiny else Size(), options.device, options.precision)
    print(show(meter, seconds, options.rows))
    return 1 if options.device == "cuda" and meter.seconds / meter.size.timed * 1000 > TARGET else 0


if __name__ == "__main__":
    sys.exit(main())
