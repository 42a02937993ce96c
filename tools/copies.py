"""Copies of the project: a fault is planted in one, and its tests run there."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tools.faults import Fault, SeedError

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "dist", "*.egg-info")
CANARY = "canary in the copy"
# seconds for the canary to be heard, which says nothing of speed: a busy machine starts Python slowly
PATIENCE = 60.0
# how pytest ends where an exception was not a test's, and where there were no tests
BROKEN, NO_TESTS, NO_CONFTEST = 3, 5, "ImportError while loading conftest"
# the processes of pytest that run now
RUNNING: set[int] = set()


def copy_project(root: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """The project without its history, environments and caches: a stale .pyc could hide a fault."""
    shutil.copytree(root, to, ignore=NOT_COPIED)
    return to


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
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    # tensors are tiny: threads would only wait for one another
    env["OMP_NUM_THREADS"] = "1"
    if "REGARD_DATA" in os.environ:
        env["REGARD_DATA"] = os.path.abspath(os.environ["REGARD_DATA"])
    # a session of its own: what tests start ends with them
    with subprocess.Popen(
        command, cwd=copy, env=env, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as child:  # fmt: skip
        RUNNING.add(child.pid)
        try:
            said, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired as late:
            # slow or endless, nobody knows: it counts as not caught
            return None, str(late.stdout or "")
        finally:
            end_tests(child.pid)
    if child.returncode in (0, NO_TESTS):
        return "", said
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
    if failed:
        return failed[1], said
    # what breaks a conftest, pytest or the interpreter fails no test by name
    if child.returncode == BROKEN or NO_CONFTEST in said:
        return f"pytest itself, status {child.returncode}", said
    if child.returncode < 0:
        return f"signal {-child.returncode}", said
    raise SeedError(f"pytest broke off with status {child.returncode}: {last_line(said)}")


def end_tests(*running: int) -> None:
    """End these processes of pytest and all that they started."""
    for number in running:
        with suppress(OSError):
            os.killpg(number, signal.SIGKILL)
        RUNNING.discard(number)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def check_copy(copy: pathlib.Path, tests: Sequence[str], limit: float) -> None:
    """The copy is what is tested; otherwise no verdict means anything."""
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
        raise SeedError(f"the tests do not run on the copy: a broken package there was not noticed. {last_line(said)}")
