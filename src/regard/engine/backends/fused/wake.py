"""Triton's own start, in threads of its own while our kernels are imported and a call is planned.

Where its caches are empty it compiles a module in C, and reads all of itself for the names that files in them have:
some tenths of a second each, one after the other where a kernel is compiled, and both without Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

import torch
import triton

_threads: list[Thread] = []


def begin() -> None:
    """Begin it, where there is a device to compile for."""
    if not triton.knobs.runtime.interpret and torch.cuda.is_available():
        for work in (_find_device, _find_name):
            thread = Thread(target=_try, args=(work,))
            thread.start()
            _threads.append(thread)


def wait() -> None:
    """Until it is done."""
    for thread in _threads:
        thread.join()


def _try(work: Callable[[], Any]) -> None:
    # what fails here fails again where a kernel is compiled, before somebody who hears of it
    with suppress(Exception):
        work()


def _find_device() -> None:
    target = triton.runtime.driver.default.get_current_target()
    triton.compiler.make_backend(target).hash()


def _find_name() -> None:
    triton.runtime.cache.triton_key()


begin()
