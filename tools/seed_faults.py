"""Whether the tests notice faults: plant each of `tools.faults` in a copy of the project and run its tests there.

The working tree is never touched. A fault is caught when a test fails; one that survives is a test that is missing.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from queue import SimpleQueue

from tools.arguments import Parser, read_count, read_path
from tools.browser import find_chromium
from tools.copies import RUNNING, check_copy, copy_project, end_tests, last_line, planted, run_tests
from tools.faults import COMMAND, DRAWN, EQUIVALENT, FAULTS, Fault, SeedError
from tools.stages import gather_tests, plan_stages
from tools.verdicts import Count, Verdict, show

ROOT = pathlib.Path(__file__).parents[1]
ENOUGH = 0.95
# stages that are a fault's own tests, its room, and the next of what judges it
NEAR = 3


def judge(
    root: pathlib.Path, faults: Sequence[Fault], first: Sequence[str], jobs: int, limit: float, clean: bool,
    near: bool = False,
) -> Iterator[Verdict]:  # fmt: skip
    """Each fault with what caught it, as they are found; `limit` is for one stage of one fault.

    `near` looks no further than its own room, and has no verdict on what that lets pass.
    """
    stages = {fault.what: plan_stages(root, fault, first)[: NEAR if near else None] for fault in faults}
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[pathlib.Path] = SimpleQueue()
        for number in range(jobs):
            copies.put(copy_project(root, pathlib.Path(folder) / f"copy{number}"))

        @contextmanager
        def borrowed() -> Iterator[pathlib.Path]:
            copy = copies.get()
            try:
                yield copy
            finally:
                copies.put(copy)

        def pass_clean(tests: Sequence[str]) -> None:
            with borrowed() as copy:
                failed, said = run_tests(copy, tests, limit)
            if failed is None:
                raise SeedError(f"{tests[0]} and others need more than {limit:.0f} s without any fault: raise --limit.")
            if failed:
                raise SeedError(f"the tests fail without any fault: {failed}. {last_line(said)}")

        def examine(fault: Fault) -> Verdict:
            start, test = time.monotonic(), None
            with borrowed() as copy, planted(copy, fault):
                for stage in stages[fault.what]:
                    test, _ = run_tests(copy, stage, limit)
                    if test != "":
                        break
            return Verdict(fault, test, time.monotonic() - start)

        try:
            with borrowed() as copy:
                check_copy(copy, [test for own in stages.values() for stage in own for test in stage], limit)
            if clean:
                list(pool.map(pass_clean, gather_tests(stage for own in stages.values() for stage in own)))
            for found in as_completed([pool.submit(examine, fault) for fault in faults]):
                if found.result().caught or not near:
                    yield found.result()
        finally:
            # whoever stops does not wait for the rest
            pool.shutdown(wait=False, cancel_futures=True)
            end_tests(*RUNNING)


def check_texts(root: pathlib.Path, faults: Iterable[Fault]) -> None:
    """Every fault still fits the source; all that do not are named at once."""
    aged, drawn = [], {fault.what for fault in DRAWN}
    for fault in faults:
        try:
            fault.plant((root / fault.path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            why = f"{fault.path} of '{fault.what}' cannot be read." if isinstance(problem, OSError) else str(problem)
            aged.append(f"{why} Draw again: {COMMAND}." if fault.what in drawn else why)
    if aged:
        raise SeedError(" ".join(aged))


def name_commit(root: pathlib.Path) -> str:
    """The last commit of code and tests, and whether they have changed since; unknown without git."""

    def ask(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    try:
        judged = "src", "tests", "tools/faults"
        changes = " with changes" if ask("status", "--porcelain", *judged) else ""
        return ask("log", "-1", "--format=%h", "--", *judged) + changes
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def list_changed(root: pathlib.Path, commit: str) -> set[str]:
    """The files of the source that are not as they were at a commit."""
    command = ["git", "diff", "--name-only", commit, "--", "src"]
    try:
        return set(subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split())
    except (OSError, subprocess.CalledProcessError):
        raise SeedError(f"git knows no commit {commit} to take verdicts over from.") from None


def read_options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Parser]:
    cores = os.cpu_count() or 1
    parser = Parser(
        prog="python -m tools.seed_faults",
        description=f"Plant faults in a copy of the project, see which tests catch; exit status 1 below {ENOUGH:.0%}.",
        epilog="examples:\n  python -m tools.seed_faults --out docs/faults.md\n  python -m tools.seed_faults --list\n"
        "  python -m tools.seed_faults --resume docs/faults.json --again\n"
        "  python -m tools.seed_faults --room layers --room data\n"
        "  python -m tools.seed_faults --only softmax --skip-clean\n"
        "  python -m tools.seed_faults --first tests/weigh --first tests/conformance/test_gradients.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rooms = list(dict.fromkeys(fault.room for fault in FAULTS))
    add = parser.add_argument
    add("--list", action="store_true", help="name the faults and run nothing")
    add("--only", metavar="TEXT", help="the faults whose file or description holds TEXT")
    add("--room", action="append", metavar="NAME", help=f"the faults of a room, may be repeated: {', '.join(rooms)}")
    add("--first", action="append", metavar="PATH", help="tests to run first, may be repeated")
    add("--jobs", type=read_count, default=cores, metavar="N", help="faults examined at a time (default: the cores)")
    add("--limit", type=read_count, default=900, metavar="S", help="seconds for one stage of a fault (default 900)")
    add("--near", action="store_true", help="run the tests of its own room alone; no verdict on what they miss: quick")
    add("--skip-clean", action="store_true", help="trust that the tests pass without a fault")
    page, kept = (functools.partial(read_path, suffix) for suffix in (".md", ".json"))
    add("--out", type=page, metavar="FILE.md", help="write the count after every fault, and FILE.json beside it")
    add("--resume", type=kept, metavar="FILE.json", help="go on with a count that was broken off")
    add("--again", action="store_true", help="with --resume: keep what was caught at another commit, judge the rest")
    options = parser.parse_args(arguments)
    if options.again and not options.resume:
        parser.error("argument --again: there is nothing to go on from without --resume")
    for path in options.first or ():
        if not (ROOT / path).exists():
            parser.error(f"argument --first: there is no {path}")
    for room in options.room or ():
        if room not in rooms:
            parser.error(f"argument --room: there are no faults of {room!r}, only of {', '.join(rooms)}")
    return options, parser


def main(arguments: Sequence[str] | None = None) -> int:
    # a shell lets what it starts in the background ignore Ctrl-C, and tests of signals would inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    options, parser = read_options(arguments)
    faults = [
        fault for fault in FAULTS
        if (options.only or "") in f"{fault.file} {fault.what}" and fault.room in (options.room or (fault.room,))
    ]  # fmt: skip
    if not faults:
        parser.error(f"no fault has {options.only!r} in its file or description")
    try:
        check_texts(ROOT, faults)
        if options.list:
            print("\n".join(f"{x.file:<28} {x.what}" + _tell_equivalent(x) for x in faults))
            return 0
        given = sys.argv[1:] if arguments is None else arguments
        return count_faults(faults, options, shlex.join([*parser.prog.split(), *given]))
    except SeedError as problem:
        parser.error(str(problem))
    except KeyboardInterrupt:
        parser.exit(130, "Stopped.\n")


def _tell_equivalent(fault: Fault) -> str:
    return f" (equivalent: {EQUIVALENT[fault.what]})" if fault.what in EQUIVALENT else ""


def count_faults(faults: Sequence[Fault], options: argparse.Namespace, command: str) -> int:
    """Judge what is to be judged, tell of it meanwhile; the status to exit with."""
    count = begin_count(faults, command)
    page = options.out or (options.resume and options.resume.with_suffix(".md"))
    if options.resume:
        count.go_on(options.resume, functools.partial(list_changed, ROOT) if options.again else None)
        print(f"{len(count.verdicts)} were judged before.")
    before, began, todo = count.seconds, time.monotonic(), count.todo
    clean = not options.skip_clean
    ways = options.first or (), options.jobs, options.limit, clean, options.near
    found = judge(ROOT, todo, *ways) if todo else ()
    for verdict in found:
        count.verdicts[verdict.fault.what] = verdict
        count.seconds = before + time.monotonic() - began
        print(f"{show(verdict)}\n{count.show_progress(options.jobs)}", flush=True)
        if page:
            count.write(page)
    print(f"\n{count.sum_up()}")
    return 0 if count.caught >= ENOUGH * len(count.verdicts) else 1


def begin_count(faults: Sequence[Fault], command: str) -> Count:
    """A count of these faults without any verdict."""
    from benchmarks.report import describe_machine

    browser = find_chromium()
    return Count(
        faults, command, name_commit(ROOT), datetime.date.today().isoformat(), describe_machine(1),
        equivalent={x.what: EQUIVALENT[x.what] for x in faults if x.what in EQUIVALENT},
        unseen={x.what: "no Chromium is installed" for x in faults if x.needs_browser and browser is None},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
