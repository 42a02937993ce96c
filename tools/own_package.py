"""The package of `examples/own`, installed as its README says, for tests and tools to drive."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OWN = pathlib.Path(__file__).parents[1] / "examples" / "own"


@contextmanager
def use_own(place: pathlib.Path) -> Iterator[pathlib.Path]:
    """Install the package in a folder, where this process finds it until the block is left."""
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", place, OWN], check=True)
    sys.path.insert(0, str(place))
    forget()
    try:
        yield place
    finally:
        sys.path.remove(str(place))
        for name in [name for name in sys.modules if name.partition(".")[0] == "own"]:
            del sys.modules[name]
        forget()


def forget() -> None:
    """What was found in packages is looked for again."""
    from regard.plugins import find_plugins
    from regard.tasks.registry import list_tasks

    find_plugins.cache_clear()
    list_tasks.cache_clear()
