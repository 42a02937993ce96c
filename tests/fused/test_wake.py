"""Triton's own start goes on beside ours, and nobody hears of what fails in it."""

from __future__ import annotations

import threading
from threading import Event
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from regard.engine.backends.fused import wake


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(wake, "_threads", [])
    monkeypatch.setattr(wake.triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_both_parts_run_at_a_time_until_they_are_waited_for(device, monkeypatch):
    met, log = [Event(), Event()], []

    def meet(own, other):
        own.set()
        assert other.wait(10)
        log.append(own)

    monkeypatch.setattr(wake, "_find_device", lambda: meet(*met))
    monkeypatch.setattr(wake, "_find_name", lambda: meet(*reversed(met)))
    wake.begin()
    wake.wait()
    wake.wait()
    assert set(log) == set(met)


def test_nobody_hears_of_what_fails(device, monkeypatch):
    heard = []
    monkeypatch.setattr(threading, "excepthook", heard.append)

    def fail():
        raise RuntimeError("no compiler of C")

    monkeypatch.setattr(
        wake.triton.runtime, "driver", SimpleNamespace(default=SimpleNamespace(get_current_target=fail))
    )
    monkeypatch.setattr(wake, "_find_name", fail)
    wake.begin()
    wake.wait()
    assert not heard


def test_there_is_nothing_to_begin_without_a_device(device, monkeypatch):
    for name, where, value in (
        ("is_available", torch.cuda, lambda: False),
        ("interpret", wake.triton.knobs.runtime, True),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            wake.begin()
    assert wake._threads == []


def test_what_triton_calls_its_files_is_where_it_is_looked_for():
    # a rename would cost a second that nothing else tells of
    assert callable(wake.triton.runtime.cache.triton_key)
    assert callable(wake.triton.compiler.make_backend)
