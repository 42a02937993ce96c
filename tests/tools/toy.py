"""A project of one function, two faults in it, and a count of them."""

import pathlib

from tools.faults import Fault
from tools.verdicts import Count

CONTRACT = """
[tool.pytest.ini_options]
pythonpath = ["src"]
addopts = ["--import-mode=importlib"]

[[tool.importlinter.contracts]]
type = "layers"
layers = ["(cli)", "(tasks) | compare", "room", "engine", "core"]
"""
DOUBLE = "def double(x):\n    y = 2 * x\n    unseen = 1\n    return y\n"
TWO = "from regard.room.double import *\n\ndef test_two():\n    assert double(2) == 4\n"
CAUGHT = Fault("room/double.py", "2 * x", "3 * x", "triples")
SURVIVES = Fault("room/double.py", "unseen = 1", "unseen = 2", "nobody looks")
FACTS = {
    "command": "python -m tools.seed_faults",
    "commit": "abc",
    "date": "2026-01-31",
    "machine": "a machine, 2 cores",
}


def write_files(root: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def begin(faults, **changed) -> Count:
    return Count(faults, **FACTS | changed)
