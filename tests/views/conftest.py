"""Figures that a test drew are closed after it: where another test has loaded pyplot, it counts those left open."""

import sys

import pytest


@pytest.fixture(autouse=True)
def close_figures():
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
