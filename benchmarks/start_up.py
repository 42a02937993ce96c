"""How long commands take to answer, each in a process of its own: the median, warm, and with their files read anew.

Other versions of regard, by the folder of their source, are measured in turn with this one.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import time
from collections import defaultdict

from benchmarks.report import describe_machine, table_lines
from tools.arguments import Parser, read_count

SRC = pathlib.Path(__file__).parents[1] / "src"


def list_commands(run: str) -> dict[str, list[str]]:
    """Command lines that a first hour has, by what they are."""
    return {
        "--help": ["--help"],
        "train classify --help": ["train", "classify", "--help"],
        "an option that is wrong": ["translate", run, "你好", "--beam", "x"],
        "a run that is not there": ["translate", "runs/none", "你好"],
        "data that is not there": ["train", "classify", "--data", "none.csv", "--out", "runs/none"],
        "a schedule that is none": ["train", "translate", "--schedule", "none", "--out", "runs/none"],
        "a setting that is none": ["train", "tag", "--set", "x=1", "--out", "runs/none"],
        "an answer (translate)": ["translate", run, "你好", "--device", "cpu"],
        "a look (terminal)": ["look", run, "你好", "--device", "cpu"],
        "a score (evaluate)": ["evaluate", run, "--limit", "20", "--device", "cpu"],
    }


def forget_files(folders: list[pathlib.Path]) -> None:
    """Ask the system to drop what it holds of these files in memory."""
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                try:
                    handle = os.open(os.path.join(place, name), os.O_RDONLY)
                except OSError:
                    continue
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)


def clock(source: pathlib.Path, line: list[str], *, cold: bool) -> float:
    """The seconds of a command in a process of its own."""
    if cold:
        forget_files([pathlib.Path(sysconfig.get_paths()["purelib"]), source])
    environment = {**os.environ, "PYTHONPATH": str(source)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "regard", *line], env=environment, capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> None:
    parser = Parser(prog="python -m benchmarks.start_up", description=__doc__)
    parser.add_argument("run", help="the folder of a trained translator, as regard demo leaves it")
    parser.add_argument("others", nargs="*", metavar="NAME=SRC", help="other versions, by the folder of their source")
    parser.add_argument("--turns", type=read_count, default=5, metavar="N", help="measurements of each (default 5)")
    given = parser.parse_args()
    versions = {name: pathlib.Path(source) for name, _, source in (x.partition("=") for x in given.others)}
    versions["now"] = SRC
    rows = []
    for what, line in list_commands(given.run).items():
        found: dict[tuple[str, bool], list[float]] = defaultdict(list)
        for cold, number in itertools.product((False, True), range(given.turns + 1)):
            for name, source in versions.items():
                seconds = clock(source, line, cold=cold)
                # the first one warms up, and compiles
                if number:
                    found[name, cold].append(seconds)
        cells = (statistics.median(found[name, cold]) for name in versions for cold in (False, True))
        rows.append((what, *(f"{x:.2f}" for x in cells)))
        print(*rows[-1], file=sys.stderr)
    heads = (f"{name}, {kind}" for name in versions for kind in ("warm", "cold"))
    print("\n".join(table_lines(("seconds", *heads), rows)), end="\n\n")
    print(f"{describe_machine(os.cpu_count() or 1)}.")


if __name__ == "__main__":
    main()
