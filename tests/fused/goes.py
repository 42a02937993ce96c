"""Kernels let nothing through a mask in one of two ways: calls with little work go the first, and tests have no other.

`at once`: every block with care. `again`: without it, and with it those that came out ill.
"""

from __future__ import annotations

import math

import pytest

GOES = ("at once", "again")


def go(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Let calls go this way, however much work they are."""
    from regard.engine import known
    from regard.engine.backends.fused import kind

    assert how in GOES
    monkeypatch.setattr(kind, "LEAST_WORK", math.inf if how == "at once" else 0)
    # what is kept of a kind of call went the usual way
    monkeypatch.setattr(kind, "_kinds", {})
    monkeypatch.setattr(known, "_known", {})
