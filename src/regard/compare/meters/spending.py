"""How long calls take, all of them in turns; how much memory one takes; and whether there is time for more."""

from __future__ import annotations

import gc
import math
import pathlib
import re
import statistics
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

LINUX = pathlib.Path("/proc/meminfo")
# what is said of all that was left out for lack of time
WHY = "the quick look had no time left"
# a turn takes at least so many seconds: a thousand times what the clock can tell apart
TURN = 2e-3
# a call that takes this long needs no other to warm up
LONG = 0.02
# fewer have no quartiles to speak of
ROUNDS = 3


class Budget:
    """So many seconds from now on; None is all the time there is.

    >>> clock = iter([0.0, 0.0, 4.0, 7.0])
    >>> budget = Budget(10.0, lambda: next(clock))
    >>> [budget.allows() for _ in range(3)]
    [True, True, False]
    """

    def __init__(self, seconds: float | None, read: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._end = math.inf if seconds is None else read() + seconds
        self._begun: float | None = None
        self._longest = 0.0

    def allows(self) -> bool:
        """Whether to begin another: the first always, then if there is time for one as long as the longest before."""
        now, begun = self._read(), self._begun
        self._longest = max(self._longest, 0.0 if begun is None else now - begun)
        self._begun = now
        return begun is None or now + self._longest <= self._end


def time_calls(
    calls: Mapping[str, Callable[[], object]],
    device: torch.device | str = "cpu",
    budget: float = 1.0,
    most: int = 15,
    read: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[str, float]]:
    """The seconds of each call: the median of its rounds, the quartiles around it, the fastest, how many there were.

    Each has one turn a round, back and forth, so that what the machine does meanwhile meets all of them alike; a turn
    is as many calls as the clock needs. There are three rounds at least, then more until they took `budget` seconds or
    were `most`. On CUDA a turn ends when the device has finished.
    """
    is_cuda = torch.device(device).type == "cuda"

    def settle() -> None:
        if is_cuda:
            torch.cuda.synchronize(device)

    def take_turn(call: Callable[[], object], loops: int) -> float:
        settle()
        start = read()
        for _ in range(loops):
            call()
        settle()
        return (read() - start) / loops

    seconds: dict[str, list[float]] = {}
    loops: dict[str, int] = {}
    with pause_gc():
        for name, call in calls.items():
            first = take_turn(call, 1)
            # a long call is warm by its end, and is the turn of the first round; others only warm up
            seconds[name] = [first] if first >= LONG else []
            loops[name] = 1 if first >= LONG else math.ceil(TURN / max(take_turn(call, 1), 1e-6))
        start = read()
        for turn in range(most):
            if turn >= ROUNDS and read() - start >= budget:
                break
            for name in calls if turn % 2 == 0 else reversed(list(calls)):
                if len(seconds[name]) == turn:
                    seconds[name].append(take_turn(calls[name], loops[name]))
    timings = {}
    for name, found in seconds.items():
        low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
        timings[name] = {"seconds": middle, "low": low, "high": high, "fastest": min(found), "rounds": len(found)}
    return timings


@contextmanager
def pause_gc() -> Iterator[None]:
    """No collection of garbage within: it comes when it likes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def find_peak(call: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """Bytes at the peak of one call, beyond what was alive before it.

    >>> rows = torch.ones(1000)
    >>> find_peak(lambda: (rows * 2).exp().sum())
    8000

    On the CPU this is what tensors hold between operators, forward and backward: the same in every run, without the
    scratch space that a kernel takes and gives back. On CUDA it is what the allocator gave out, scratch space and all;
    call once before, or what libraries allocate once and keep is counted too.
    """
    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    ledger = _Ledger()
    with pause_gc(), ledger:
        call()
    return ledger.most


def find_free(device: torch.device | str = "cpu") -> int | None:
    """Bytes that are free on a device; None where the system does not say."""
    device = torch.device(device)
    if device.type == "cuda":
        # what torch's allocator keeps for later is free too
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    # only Linux tells what could be freed at once
    if not LINUX.is_file():
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", LINUX.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


class _Ledger(TorchDispatchMode):
    """Keeps account of every storage that an operator makes, until it is freed, and remembers the most."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.most = 0
        # by address; a storage that is alive is noted once, and the reference keeps nothing alive
        self.known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # nothing is compiled here, and torch's guard against it takes longer than the account
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # what an operator is given and was not made here was there before: it, and views of it, cost nothing
        kwargs = kwargs or {}
        self._note([*args, *kwargs.values()], False)
        out = func(*args, **kwargs)
        self._note(out, True)
        self.most = max(self.most, self.live)
        return out

    def _note(self, found: object, is_made: bool) -> None:
        """A tensor, or a list of what may be some; torch's `tree_leaves` is too slow for many small operators."""
        if isinstance(found, Tensor):
            storage = found.untyped_storage()
            at = storage._cdata
            if at not in self.known:
                size = storage.nbytes() if is_made else 0
                self.live += size
                self.known[at] = weakref.ref(storage, partial(self._forget, at, size))
        elif isinstance(found, list | tuple):
            for part in found:
                self._note(part, is_made)

    def _forget(self, at: int, size: int, _: object) -> None:
        self.live -= size
        del self.known[at]
