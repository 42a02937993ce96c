"""The command line of the benchmarks on a GPU."""

from __future__ import annotations

import argparse
import datetime
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.gpu import page
from benchmarks.gpu.calls import measure_call
from benchmarks.gpu.cases import CASES, NOTHING, Place
from benchmarks.gpu.cold import COLD, measure_cold
from benchmarks.gpu.goal import Part, Reading
from benchmarks.gpu.kinds import SMALL, SWEEP, TABLE
from benchmarks.gpu.measure import Clock, DeviceLostError, check_device, measure_case
from benchmarks.gpu.models import MODELS, measure_model
from benchmarks.gpu.page import Block, Run, show_block, show_head
from benchmarks.measure import one_line
from benchmarks.report import tell
from tools.arguments import Parser, read_count, read_date, read_path

EXAMPLES = """examples:
  python -m benchmarks.gpu                                      all cases, about twenty minutes
  python -m benchmarks.gpu --section table --section sweep      the calls that people train with
  python -m benchmarks.gpu --only relu --only window-train      some of them
  python -m benchmarks.gpu --json gpu.json --out docs/benchmarks.md
  python -m benchmarks.gpu --from gpu.json --out docs/benchmarks.md   the page once more, without a GPU
  python -m benchmarks.gpu --device cpu --tiny --backend tiled  whether all is right, without a GPU
The status is 1 where our own result is wrong or missing, 2 where the command cannot run.
"""
# what there is to measure, and how; the kernels' own way takes more options
SECTIONS: dict[str, tuple[Sequence[Any], Any]] = {
    "kernels": (CASES, None), "table": (TABLE, measure_call), "sweep": (SWEEP, measure_call),
    "small": (SMALL, measure_call), "cold": (COLD, measure_cold), "models": (MODELS, measure_model),
}  # fmt: skip
ALL = {case.name: (section, case) for section, (cases, _) in SECTIONS.items() for case in cases}


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks.gpu",
        description="Measure regard's kernels on a GPU beside torch's own, its compiler and the entmax package.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--list", action="store_true", help="name the cases and what is to be reached, and run nothing")
    add("--only", action="append", choices=[*ALL], metavar="NAME", help="a case, may be repeated; see --list")
    add("--section", action="append", choices=[*SECTIONS], metavar="NAME",
        help=f"a part of the cases, may be repeated: {', '.join(SECTIONS)} (default all)")  # fmt: skip
    add("--repeat", type=read_count, default=20, metavar="N", help="most turns of each contender (default 20)")
    add("--out", type=partial(read_path, ".md"), metavar="MD", help="put the tables into the GPU section of a page")
    add("--json", type=partial(read_path, ".json"), metavar="FILE", help="write all raw numbers")
    add("--from", action="append", type=partial(read_path, ".json"), metavar="FILE", dest="read",
        help="measure nothing, take what --json wrote; may be repeated, the later file wins")  # fmt: skip
    add("--date", type=read_date, help="the date on the page (default today)")
    add("--backend", default="fused", metavar="NAME", help="our backend in the kernels' cases (default fused)")
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu is there to see that all is right, not how fast")
    add("--tiny", action="store_true", help="small tensors, for the same purpose")
    options = parser.parse_args(arguments)
    options.date = options.date or datetime.date.today().isoformat()
    options.parser = parser
    return options


def measure(name: str, run: Run, options: argparse.Namespace, clock: Clock, place: str) -> list[Block]:
    """One case; what goes wrong before there are contenders is told in place of ours."""
    section, case = ALL[name]
    # only calls have a dtype of their own
    where = Place(options.device, getattr(case, "dtype", torch.bfloat16), compiles=clock.on_device)
    progress = partial(tell, place)
    try:
        if section == "kernels":
            shape = case.tiny if options.tiny else case.shape
            rows = measure_case(case, where, shape, options.backend, options.repeat, clock, progress)
            parts = [Part(name, case.describe(shape), case.goal, rows)]
        else:
            parts = SECTIONS[section][1](case, where, options.tiny, options.repeat, clock, progress)
    except Exception as problem:
        ours = "regard" if section != "kernels" else f"regard {options.backend}"
        parts = [Part(name, case.title, NOTHING, [Reading(ours, side="ours", missing=one_line(problem))])]
    # what is to be reached is meant for a GPU and for the case as it is
    goals = [part.goal if clock.on_device and not options.tiny else NOTHING for part in parts]
    return [
        Block(part.name, part.title, str(goal), goal.judge(part.rows), part.rows, run, section, part.tokens)
        for part, goal in zip(parts, goals, strict=True)
    ]


def list_names(options: argparse.Namespace) -> list[str]:
    """The cases that were chosen, by name or with their section."""
    return [
        name for name, (section, _) in ALL.items()
        if name in (options.only or ALL) and section in (options.section or SECTIONS)
    ]  # fmt: skip


def measure_all(options: argparse.Namespace, command: str) -> list[Block]:
    """Every chosen case, shown as soon as it is done."""
    # float32 means float32
    torch.set_float32_matmul_precision("highest")
    chosen = list_names(options)
    run, clock, start = (
        page.describe_run(options.device, options.date, command),
        Clock(options.device),
        time.perf_counter(),
    )
    print(f"{run}\n\n{show_head()}", flush=True)
    blocks: list[Block] = []
    for number, name in enumerate(chosen, 1):
        place = f"[{number}/{len(chosen)}] {name}:"
        if not sys.stderr.isatty():
            print(f"{place} after {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        found = measure(name, run, options, clock, place)
        blocks += found
        tell("", "\r")
        print("\n".join(map(show_block, found)), flush=True)
        if options.json is not None:
            # a run that is broken off leaves what it has
            write_file(page.write_numbers, blocks, options.json, options)
        if clock.on_device:
            try:
                check_device(name)
                torch.cuda.empty_cache()
            except DeviceLostError as problem:
                print(f"the device is lost, and the cases that are left with it: {problem}", file=sys.stderr)
                break
    return blocks


def read_all(paths: Sequence[pathlib.Path], options: argparse.Namespace) -> list[Block]:
    """The cases of files that --json wrote, in the order of the table; of a case in two files the later."""
    found: dict[str, Block] = {}
    for path in paths:
        try:
            found |= {block.name: block for block in page.read_numbers(path)}
        except OSError as problem:
            options.parser.error(f"argument --from: cannot read {path}: {problem.strerror or problem}")
        except (ValueError, TypeError, KeyError, AttributeError):
            options.parser.error(f"argument --from: {path} is not what --json writes")
    # parts of a case bear its name before a colon
    return [block for name in list_names(options) for part, block in found.items() if part.partition(":")[0] == name]


def write_file(
    write: Callable[[Sequence[Block], pathlib.Path], None], blocks: Sequence[Block], path: pathlib.Path,
    options: argparse.Namespace,
) -> None:  # fmt: skip
    try:
        write(blocks, path)
    except OSError as problem:
        options.parser.error(f"cannot write {path}: {problem.strerror or problem}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    if options.list:
        for name in list_names(options):
            case = ALL[name][1]
            goals = dict(case.goals) if hasattr(case, "goals") else {"": case.goal}
            reach = "".join(f"; {f'{part} {goal}'.lstrip()}" for part, goal in goals.items() if str(goal))
            print(f"{name:<34} {case.title}{reach}")
        return 0
    if options.read:
        blocks = read_all(options.read, options)
    elif options.device == "cuda" and not torch.cuda.is_available():
        options.parser.error("there is no CUDA device. To see that all is right: --device cpu --tiny --backend tiled")
    else:
        # a page names no folder of somebody's machine
        given = [word.rpartition("/")[2] for word in (sys.argv[1:] if arguments is None else arguments)]
        blocks = measure_all(options, " ".join(["python -m benchmarks.gpu", *given]))
    print(f"\n{page.show_summary(blocks)}")
    for write, path in ((page.write_numbers, options.json), (page.write_page, options.out)):
        if path is not None:
            write_file(write, blocks, path, options)
            print(f"wrote {path}")
    own = [row for block in blocks for row in block.rows if row.side != "peer"]
    return 1 if not own or any(row.missing or row.bits is False for row in own) else 0


if __name__ == "__main__":
    sys.exit(main())
