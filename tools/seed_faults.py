"""Whether the tests notice faults: plant each of `tools.faults` in a copy of the project and run its tests there.

The working tree is never touched. A fault is caught when a test fails; one that survives is a test that is missing.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

from tools.arguments import Parser, read_count
from tools.faults import FAULTS, Fault
from tools.faults.fused import FUSED

ROOT = pathlib.Path(__file__).parents[1]
ENOUGH = 0.95
# quick and telling rooms first; those not named follow in the order of the alphabet
ORDER = (
    "tests/mask", "tests/bias", "tests/weigh", "tests/score", "tests/core", "tests/engine", "tests/fused",
    "tests/conformance", "tests/incidents", "tests/metamorphic", "tests/fuzz", "tests/packaging/test_docs.py",
)  # fmt: skip
# slow ones that seldom tell what the others did not
LAST = ("tests/engine/test_compiled.py", "tests/conformance/test_second_derivatives.py")
# this tool's own tests see the planted text missing, and would catch everything; the rest is not about the arithmetic
LEFT_OUT = ("tests/tools", "tests/packaging", "tests/fuzz/test_faults.py", "tests/test_conftest.py")
# where the tests of a file do not bear its name
NEAR = {
    "engine/fold.py": ("tests/engine/test_shapes.py", "tests/engine/test_torch.py"),
    "engine/poison.py": ("tests/incidents/test_poison.py", "tests/incidents/test_nan_shows.py"),
    "engine/backends/sdpa.py": ("tests/engine/test_torch.py", "tests/incidents/test_torch.py"),
    **dict.fromkeys(
        sorted({fault.file for fault in FUSED}), ("tests/fused/test_conformance.py", "tests/fused/test_edges.py")
    ),
    "engine/tiles/twice.py": ("tests/conformance/test_second_derivatives.py",),
    "weigh/sum.py": ("tests/conformance/test_gradients.py",),
}
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "dist", "*.egg-info")
CANARY = "canary in the copy"
# seconds for the canary to be heard, which says nothing of speed: a busy machine starts Python slowly
PATIENCE = 60.0


class SeedError(Exception):
    """What makes a whole run worthless."""


@dataclass(frozen=True)
class Verdict:
    """What became of one fault: the first test that failed, empty if none did; None if the time was up before."""

    fault: Fault
    test: str | None
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.test)

    @property
    def mark(self) -> str:
        return "caught" if self.caught else "SURVIVED" if self.test == "" else "NO END"


def copy_project(root: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """The project without its history, environments and caches: a stale .pyc could hide a fault."""
    shutil.copytree(root, to, ignore=NOT_COPIED)
    return to


def list_tests(root: pathlib.Path, order: Sequence[str]) -> list[str]:
    """All files of tests, in that order; a path that is there once is not run twice."""
    left_out = [root / path for path in LEFT_OUT]
    rest = sorted(path for path in (root / "tests").glob("*") if path not in left_out)
    found: dict[str, None] = {}
    for top in [*(root / path for path in order), *rest]:
        for path in [top] if top.is_file() else sorted(top.rglob("test_*.py")):
            if path.name.startswith("test_") and path.suffix == ".py" and path not in left_out:
                found[path.relative_to(root).as_posix()] = None
    return [path for path in found if path not in LAST] + [path for path in LAST if path in found]


def own_test(fault: Fault, tests: Sequence[str]) -> list[str]:
    """The tests with those of the fault's own file in front: `tests/<room>/test_<file>.py`, and what is near."""
    own = [f"/{room}/test_{fault.path.name}" for room in fault.path.parent.parts]
    first = [test for test in tests if test.endswith(tuple(own)) or test in NEAR.get(fault.file, ())]
    return first + [test for test in tests if test not in first]


@contextmanager
def planted(copy: pathlib.Path, fault: Fault) -> Iterator[None]:
    """The copy with the fault in it, for as long as the block lasts."""
    path = copy / fault.path
    sound = path.read_text(encoding="utf-8")
    try:
        wrong = fault.plant(sound)
    except ValueError as problem:
        raise SeedError(str(problem)) from None
    path.write_text(wrong, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(sound, encoding="utf-8")


def run_tests(copy: pathlib.Path, tests: Sequence[str], limit: float) -> tuple[str | None, str]:
    """The first test that fails, empty if none does, None if the time was up; and all that pytest said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *tests]
    # the copy's own package comes before any that is installed, and leaves no .pyc for the next fault to trip over
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "250"}
    # tensors are tiny: threads would only wait for one another
    env["OMP_NUM_THREADS"] = "1"
    try:
        done = subprocess.run(
            command, cwd=copy, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout or ""
        # slow or endless, nobody knows: it counts as not caught
        return None, said if isinstance(said, str) else said.decode()
    if done.returncode == 0:
        return "", done.stdout
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if failed:
        return failed[1], done.stdout
    # a crash of the interpreter fails no test by name
    if done.returncode < 0:
        return f"signal {-done.returncode}", done.stdout
    raise SeedError(f"pytest broke off with status {done.returncode}: {_last_line(done.stdout)}")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def check_copy(copy: pathlib.Path, tests: Sequence[str], limit: float, clean: bool) -> None:
    """The copy is what is tested, and its tests pass without a fault; otherwise no verdict means anything."""
    if not tests:
        raise SeedError("there are no tests to run.")
    door = copy / "src" / "regard" / "__init__.py"
    sound = door.read_text(encoding="utf-8")
    door.write_text(f"raise RuntimeError({CANARY!r})\n", encoding="utf-8")
    try:
        _, said = run_tests(copy, tests[:1], max(limit, PATIENCE))
    finally:
        door.write_text(sound, encoding="utf-8")
    if CANARY not in said:
        raise SeedError(f"the tests do not run on the copy: a broken package there was not noticed. {_last_line(said)}")
    if clean:
        failed, said = run_tests(copy, tests, limit)
        if failed is None:
            raise SeedError(f"the tests need more than {limit:.0f} s without any fault: raise --limit.")
        if failed:
            raise SeedError(f"the tests fail without any fault: {failed}. {_last_line(said)}")


def judge(
    root: pathlib.Path, faults: Sequence[Fault], order: Sequence[str], jobs: int, limit: float, clean: bool
) -> Iterator[Verdict]:
    """Each fault with what caught it, in the order given."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copies: SimpleQueue[pathlib.Path] = SimpleQueue()
        for number in range(jobs):
            copies.put(copy_project(root, pathlib.Path(folder) / f"copy{number}"))
        first = copies.get()
        tests = list_tests(first, order)
        check_copy(first, tests, limit, clean)
        copies.put(first)

        def examine(fault: Fault) -> Verdict:
            copy, start = copies.get(), time.monotonic()
            try:
                with planted(copy, fault):
                    test, _ = run_tests(copy, own_test(fault, tests), limit)
            finally:
                copies.put(copy)
            return Verdict(fault, test, time.monotonic() - start)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(examine, faults)


def show(verdict: Verdict) -> str:
    fault = verdict.fault
    return f"{verdict.mark:<9}{verdict.seconds:>5.0f} s  {fault.file:<28} {fault.what}" + (
        f"\n{'':>18}by {verdict.test}" if verdict.caught else ""
    )


def check_texts(root: pathlib.Path, faults: Iterable[Fault]) -> None:
    """Every fault still fits the source; all that do not are named at once."""
    aged = []
    for fault in faults:
        try:
            fault.plant((root / fault.path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            aged.append(str(problem))
    if aged:
        raise SeedError(" ".join(aged))


def read_options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Parser]:
    parser = Parser(
        prog="python -m tools.seed_faults",
        description=f"Plant faults in a copy of the project, see which the tests catch; status 1 below {ENOUGH:.0%}.",
        epilog="examples:\n  python -m tools.seed_faults\n  python -m tools.seed_faults --list\n"
        "  python -m tools.seed_faults --only softmax --skip-clean\n"
        "  python -m tools.seed_faults --first tests/weigh --first tests/conformance/test_gradients.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="name the faults and run nothing")
    parser.add_argument("--only", metavar="TEXT", help="the faults whose file or description holds TEXT")
    parser.add_argument("--first", action="append", metavar="PATH", help="tests to run first, may be repeated")
    parser.add_argument("--jobs", type=read_count, default=1, metavar="N", help="faults examined at a time (default 1)")
    parser.add_argument(
        "--limit", type=read_count, default=1200, metavar="S", help="seconds for one fault (default 1200)"
    )
    parser.add_argument("--skip-clean", action="store_true", help="trust that the tests pass without a fault")
    options = parser.parse_args(arguments)
    for path in options.first or ():
        if not (ROOT / path).exists():
            parser.error(f"argument --first: there is no {path}")
    return options, parser


def main(arguments: Sequence[str] | None = None) -> int:
    options, parser = read_options(arguments)
    faults = [f for f in FAULTS if options.only is None or options.only in f"{f.file} {f.what}"]
    if not faults:
        parser.error(f"no fault has {options.only!r} in its file or description")
    try:
        check_texts(ROOT, faults)
        if options.list:
            print("\n".join(f"{fault.file:<28} {fault.what}" for fault in faults))
            return 0
        order = [*(options.first or ()), *ORDER]
        verdicts = []
        for verdict in judge(ROOT, faults, order, options.jobs, options.limit, not options.skip_clean):
            verdicts.append(verdict)
            print(f"{len(verdicts):>3}/{len(faults)} {show(verdict)}", flush=True)
    except SeedError as problem:
        parser.error(str(problem))
    caught = sum(verdict.caught for verdict in verdicts)
    print(f"\n{caught} of {len(faults)} faults caught ({caught / len(faults):.0%})")
    for verdict in verdicts:
        if not verdict.caught:
            print(f"  {verdict.mark.lower()}: {verdict.fault.file}: {verdict.fault.what}")
    return 0 if caught >= ENOUGH * len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
