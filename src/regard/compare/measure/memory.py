"""How much memory a call takes."""

from __future__ import annotations

import gc
import pathlib
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

LINUX = pathlib.Path("/proc/meminfo")


def find_peak(call: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """Bytes at the peak of one call, beyond what was alive before it.

    >>> import torch
    >>> rows = torch.ones(1000)
    >>> find_peak(lambda: (rows * 2).exp().sum())
    8000

    On the CPU this is what tensors hold between operators, forward and backward: the same in every run, without the
    scratch space that a kernel takes and gives back. On CUDA it is what the allocator gave out, scratch space and all;
    call once before, or what libraries allocate once and keep is counted too.
    """
    where = torch.device(device)
    if where.type == "cuda":
        return _find_cuda_peak(call, where)
    with pause_gc(), _Ledger() as ledger:
        call()
    most: int = ledger.most
    return most


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


def find_free(device: torch.device | str = "cpu") -> int | None:
    """Bytes that are free on a device; None where the system does not say.

    >>> free = find_free()
    >>> free is None or free > 0
    True
    """
    where = torch.device(device)
    if where.type == "cuda":
        # what torch's allocator keeps for later is free too
        kept = torch.cuda.memory_reserved(where) - torch.cuda.memory_allocated(where)
        return torch.cuda.mem_get_info(where)[0] + kept
    # only Linux tells what could be freed at once
    if not LINUX.is_file():
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", LINUX.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _find_cuda_peak(call: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


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
        self._note(args, False)
        if kwargs:
            self._note(tuple(kwargs.values()), False)
        out = func(*args, **kwargs) if kwargs else func(*args)
        self._note(out, True)
        self.most = max(self.most, self.live)
        return out

    def _note(self, found: object, is_made: bool) -> None:
        """A tensor, or a list of what may be some."""
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
