"""The way of a command through the source: the files that its calls enter, in order, and how many functions of each.

python -m tools.way train tag --out /tmp/tags --max-steps 2 --quiet
"""

from __future__ import annotations

import inspect
import pathlib
import sys
from types import FrameType
from typing import Any

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "regard"


def trace(arguments: list[str]) -> dict[str, set[str]]:
    """The names of the functions that a command enters, by file, both in the order of their first call."""
    entered: dict[str, set[str]] = {}
    root = f"{SOURCE}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # an import runs the bodies of modules and classes, which are no functions
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(root):
            entered.setdefault(code.co_filename.removeprefix(root), set()).add(code.co_qualname)

    from regard.cli import main

    sys.setprofile(note)
    try:
        main(arguments)
    finally:
        sys.setprofile(None)
    return entered


def count(entered: dict[str, set[str]], rooms: tuple[str, ...]) -> str:
    """How many files and functions of these rooms were entered."""
    chosen = [names for file, names in entered.items() if file.startswith(rooms)]
    return f"{len(chosen)} files, {sum(map(len, chosen))} functions"


if __name__ == "__main__":
    found = trace(sys.argv[1:])
    for file, names in found.items():
        print(f"{file:45} {len(names):3}")
    print(f"cli, tasks and data: {count(found, ('cli/', 'tasks/', 'data/'))}; all of regard: {count(found, ('',))}")
