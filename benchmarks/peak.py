"""The extra memory of one contender, in a process of its own: `python -m benchmarks.peak CASE NUMBER N THREADS`.

Extra means the most that was resident during one call, minus what was resident just before it: inputs do not count, the
result and all that is held on the way do. Linux keeps that high-water mark per process (VmHWM) and lets it be reset, so
imports and inputs leave no trace in it. A fresh process has no freed blocks that a call could reuse unseen.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import pathlib
import resource
import sys

import torch

from benchmarks.cases import find_case

STATUS, RESET = pathlib.Path("/proc/self/status"), pathlib.Path("/proc/self/clear_refs")
TINY = 16


def read_status(field: str) -> int:
    """A size from /proc/self/status, in bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def begin() -> int:
    """Resident bytes now, with the high-water mark brought down to them."""
    gc.collect()
    # freed blocks that the C library holds back would be reused without showing
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        RESET.write_text("5")
        return read_status("VmRSS")
    except OSError:
        # not Linux, or not allowed: the mark since the process began is all there is
        return _mark()


def end() -> int:
    """The high-water mark since `begin`."""
    try:
        return read_status("VmHWM")
    except OSError:
        return _mark()


def _mark() -> int:
    # kilobytes everywhere but on macOS
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(name: str, at: int, n: int, threads: int) -> int:
    torch.set_num_threads(threads)
    case = find_case(name)
    # thread pools and code that is loaded on first use are not the call's: let a tiny one bring them in
    case.make(TINY)[at].call()
    contender = case.make(n)[at]
    if contender.compiles:
        # nor is the compiler, which runs for each new shape
        contender.call()
        contender.call()
    before = begin()
    result = contender.call()
    after = end()
    del result
    return max(after - before, 0)


if __name__ == "__main__":
    name, at, n, threads = sys.argv[1:]
    print(json.dumps(measure(name, int(at), int(n), int(threads))))
