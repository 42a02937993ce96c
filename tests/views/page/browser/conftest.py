"""Pages in a real Chromium: opened from a file, with every request, error and refusal a failure."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.views.page.browser import pages
from tools.browser import Visit


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="session")
def written(folder: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """The file of one of the pages of `pages.py`, written when it is first asked for."""

    def write(name: str) -> pathlib.Path:
        path = folder / f"{name}.html"
        return path if path.exists() else pages.make(name).page.save(path)

    return write


@pytest.fixture
def visit(browser, written) -> Iterator[Callable[..., object]]:
    """Opens a page by name, as `visit("self", "view=map")`; at the end nothing may have gone wrong."""
    contexts, visits = [], []

    def start(name: str, hash: str = "", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"} | options)
        contexts.append(context)
        context.set_default_timeout(30_000)
        visits.append(Visit.begin(context))
        return visits[-1].open(name if isinstance(name, pathlib.Path) else written(name), hash)

    yield start
    faults = [fault for one in visits for fault in one.find_faults()]
    for context in contexts:
        context.close()
    assert not faults, "\n".join(faults)
