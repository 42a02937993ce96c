"""The first call of a kind, in a process of its own whose caches are empty: `python -m benchmarks.gpu.cold KIND`."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.gpu.cases import Place, Shape, Work
from benchmarks.gpu.goal import Goal, Part, Reading
from benchmarks.gpu.kinds import MAKES, TINY_ROWS, TITLES
from benchmarks.gpu.measure import Clock, run
from regard import attend

LENGTHS = "lengths in turn"
ROOT = pathlib.Path(__file__).parents[2]
# seconds after which a process is given up
PATIENCE = 200
SHAPE, TINY = Shape((4, 8), 1024, 1024, reach=256), Shape((2, 2), 19, 19, 8, reach=5)


@dataclass(frozen=True)
class Cold:
    """First calls of a kind; milliseconds that they may take, forward and with the backward call after it."""

    name: str
    kind: str
    title: str
    goals: dict[str, Goal]


COLD = [
    Cold(
        f"cold-{kind}",
        kind,
        f"{TITLES[kind]}, {SHAPE._replace(reach=0)}, bfloat16",
        {"forward": Goal(ms=2000), "train": Goal(ms=5000)},
    )
    for kind in ("causal", "lengths", "window", "alibi", "document", "softcap", "additive")
]
COLD.append(
    Cold(
        "cold-twelve-lengths", LENGTHS, "additive score, 8 × twelve lengths from 97 to 1,000 in turn, width 64,"
        " bfloat16, in all", {"train": Goal(ms=8000)},
    )
)  # fmt: skip
WORDS = {"forward": "first call forward", "train": "first calls forward and, after it, with backward"}


def measure_cold(
    case: Cold, place: Place, tiny: bool, repeat: int, clock: Clock, progress: Callable[[str], None]
) -> list[Part]:
    """What the process says; the times of all lengths stand in the contender's name."""
    progress("a process of its own")
    command = [sys.executable, "-m", "benchmarks.gpu.cold", case.kind, place.device, *["tiny"] * tiny]
    with tempfile.TemporaryDirectory() as folder:
        caches = {f"{name}_CACHE_DIR": os.path.join(folder, name) for name in ("TRITON", "TORCHINDUCTOR")}
        path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command, env={**os.environ, **caches, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
            timeout=PATIENCE,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no word"])[-1])
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return [
        Part(f"{case.name}:{name}", f"{case.title}, {WORDS[name]}", goal, [_read(found[name])])
        for name, goal in case.goals.items()
    ]


def _read(seconds: list[float]) -> Reading:
    each = f": {', '.join(f'{x:.1f}' for x in seconds)} s" if len(seconds) > 1 else ""
    return Reading(f"regard auto{each}", [sum(seconds)], side="ours")


def main(kind: str, device: str, tiny: str = "") -> None:
    place = Place(device, torch.float32 if device == "cpu" else torch.bfloat16, compiles=False)
    clock = Clock(device)
    # torch itself is awake, and has imported what it takes to check a gradient that it is handed
    ones = torch.ones(64, 64, device=device, dtype=place.dtype, requires_grad=True)
    (ones @ ones).softmax(-1).backward(torch.ones_like(ones))
    found: dict[str, list[float]] = {"forward": [], "train": []}
    if kind == LENGTHS:
        for n in (11, 13) if tiny else (round(97 + 903 * k / 11) for k in range(12)):
            found["train"].append(
                _time(MAKES["additive"](place, TINY_ROWS if tiny else Shape((8,), n, n)), clock, True)
            )
    else:
        work = MAKES[kind](place, TINY if tiny else SHAPE)
        found["forward"] = [_time(work, clock, False)]
        found["train"] = [found["forward"][0] + _time(work, clock, True)]
    print(json.dumps(found))


def _time(work: Work, clock: Clock, trains: bool) -> float:
    for x in work.inputs.values():
        x.requires_grad_(trains)
    query, key, value = (work.inputs[name] for name in ("query", "key", "value"))
    back = torch.ones_like(value) if trains else None
    call = partial(attend, query, key, value, **work.terms)
    clock.wait()
    start = time.perf_counter()
    run(call, work.inputs, back)
    clock.wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(*sys.argv[1:])
