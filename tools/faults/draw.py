"""Draws faults by chance from all slips that the upper rooms offer, and writes them as `tools/faults/drawn.py`.

Nobody chooses among them: the seed does. Those that nobody could see are told apart in `equivalent.py`.
"""

from __future__ import annotations

import argparse
import ast
import functools
import pathlib
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from tools.arguments import Parser, read_count, read_path
from tools.faults.fault import PACKAGE, Fault
from tools.faults.mutate import Slip, list_slips

ROOT = pathlib.Path(__file__).parents[2]
ROOMS = ("layers", "models", "data", "tasks", "views", "compare", "watching", "cli")
# of each room, however small
LEAST = 5
WIDTH = 120


def draw_faults(root: pathlib.Path, seed: int, count: int) -> list[Fault]:
    """As many faults, spread over the rooms by their lines; the same seed draws the same of the same source."""
    files = {room: sorted((root / PACKAGE / room).rglob("*.py")) for room in ROOMS}
    sources = {path: path.read_text(encoding="utf-8") for some in files.values() for path in some}
    seats = share({room: sum(sources[path].count("\n") for path in some) for room, some in files.items()}, count)
    found: list[Fault] = []
    for room, some in files.items():
        offered = [(path, slip) for path in some for slip in list_slips(sources[path])]
        random.Random(f"{seed} {room}").shuffle(offered)
        chosen = sorted(_choose(offered, sources, seats[room]), key=lambda pair: (pair[0], pair[1].start))
        found += [_write_fault(path.relative_to(root / PACKAGE), sources[path], slip) for path, slip in chosen]
    return number(found)


def share(lines: dict[str, int], count: int) -> dict[str, int]:
    """How many each room has: `LEAST`, and then in proportion to its lines.

    >>> share({"small": 10, "large": 90}, 20)
    {'small': 5, 'large': 15}
    """
    seats = dict.fromkeys(lines, LEAST)
    while sum(seats.values()) < count:
        seats[max(seats, key=lambda room: lines[room] / (seats[room] + 1))] += 1
    return seats


def _choose(
    offered: Sequence[tuple[pathlib.Path, Slip]], sources: dict[pathlib.Path, str], count: int
) -> Iterator[tuple[pathlib.Path, Slip]]:
    """The first of these, no two of them in one statement."""
    taken: set[tuple[pathlib.Path, int]] = set()
    for path, slip in offered:
        if len(taken) == count:
            return
        if (path, slip.statement) not in taken and _changes(sources[path], slip):
            taken.add((path, slip.statement))
            yield path, slip


def _changes(source: str, slip: Slip) -> bool:
    """Whether what comes of it is Python, and other Python."""
    try:
        return ast.dump(ast.parse(slip.make(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _write_fault(file: pathlib.Path, source: str, slip: Slip) -> Fault:
    start, stop = widen(source, slip.start, slip.stop)
    new = source[start : slip.start] + slip.new + source[slip.stop : stop]
    return Fault(file.as_posix(), source[start:stop], new, slip.what)


def widen(source: str, start: int, stop: int) -> tuple[int, int]:
    """The whole lines around a place, and as many of their neighbours as it takes to find them once.

    >>> source = "a = 1\\nb = 1\\na = 1\\n"
    >>> source[slice(*widen(source, 16, 17))]
    'b = 1\\na = 1'
    """
    start, stop = source.rfind("\n", 0, start) + 1, source.find("\n", stop) % (len(source) + 1)
    bare = start + len(source[start:stop]) - len(source[start:stop].lstrip())
    if source.count(source[bare:stop]) == 1:
        return bare, stop
    while source.count(source[start:stop]) > 1:
        start = source.rfind("\n", 0, max(start - 1, 0)) + 1
        if source.count(source[start:stop]) > 1:
            stop = source.find("\n", stop + 1) % (len(source) + 1)
    return start, stop


def number(faults: Sequence[Fault]) -> list[Fault]:
    """The same, those that read alike told apart by a number."""
    met: Counter[str] = Counter()
    found = []
    for fault in faults:
        met[fault.what] += 1
        again = f" ({met[fault.what]})" if met[fault.what] > 1 else ""
        found.append(Fault(fault.file, fault.old, fault.new, fault.what + again))
    return found


def write_module(faults: Sequence[Fault], command: str) -> str:
    """The faults as Python; a text that is too long for a line goes on in the next."""
    head = f'"""Made by `{command}`; nobody edits it by hand."""\n\n# fmt: off\n'
    head += f'from tools.faults.fault import Fault\n\nCOMMAND = "{command}"\n\nDRAWN = [\n'
    parts = (",\n".join(map(_quote, (fault.file, fault.old, fault.new, fault.what))) for fault in faults)
    return head + "".join(f"    Fault({part.lstrip()}),\n" for part in parts) + "]\n"


def _quote(text: str) -> str:
    """A literal in lines of at most `WIDTH`, with room for what follows it, cut at spaces."""
    before, rows, row = " " * 8, [], ""
    for word in re.findall(r"\S*\s*", text):
        if len(before + _write(row + word)) > WIDTH - 2:
            rows, row = [*rows, row], ""
        row += word
    return "\n".join(before + _write(x) for x in [*rows, row])


def _write(text: str) -> str:
    """In double quotes, unless it has some: of what holds an apostrophe alone, Python takes these."""
    return repr(text) if '"' in text else f'"{repr(chr(39) + text)[2:]}'


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m tools.faults.draw",
        description=f"Draw faults from all slips that {', '.join(ROOMS)} offer, and write them as a module.",
        epilog="examples:\n  python -m tools.faults.draw\n  python -m tools.faults.draw --seed 17 --count 56\n"
        "  python -m tools.faults.draw --seed 18 --out other.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=17, metavar="N", help="which ones (default 17)")
    parser.add_argument("--count", type=read_count, default=56, metavar="N", help="how many (default 56)")
    parser.add_argument(
        "--out", type=functools.partial(read_path, ".py"), default=ROOT / "tools/faults/drawn.py", metavar="FILE.py",
        help="where to (default tools/faults/drawn.py)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if options.count < LEAST * len(ROOMS):
        parser.error(f"argument --count: must be at least {LEAST * len(ROOMS)}, {LEAST} of each room")
    faults = draw_faults(ROOT, options.seed, options.count)
    command = f"{parser.prog} --seed {options.seed} --count {options.count}"
    options.out.write_text(write_module(faults, command), encoding="utf-8")
    rooms = Counter(fault.room for fault in faults)
    print(f"{len(faults)} faults: {', '.join(f'{room} {rooms[room]}' for room in ROOMS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
