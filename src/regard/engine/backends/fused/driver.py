"""Compiled kernels started by the CUDA driver itself, on numbers that lie ready.

Triton's own launch looks at every argument each time, and Triton 3.6 compiles one in C for each kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from ctypes import CDLL, addressof, c_float, c_int, c_int64, c_uint, c_void_p, cast
from functools import cache
from typing import Any

import torch
import triton
from triton.runtime.errors import OutOfResources

_NAME = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
_ONE = c_uint(1)
# no context on this thread, as in one that autograd began
_NO_CONTEXT = (3, 201)


class Function:
    """A compiled kernel on the current device."""

    def __init__(self, made: Any) -> None:
        self.made, self.name = made, made.name
        self.device, metadata = torch.cuda.current_device(), made.metadata
        utils = triton.runtime.driver.active.utils
        most = utils.get_device_properties(self.device)["max_shared_mem"]
        if metadata.shared > most:
            raise OutOfResources(metadata.shared, most, "shared memory")
        _, handle, *_, most_threads = utils.load_binary(made.name, made.kernel, metadata.shared, self.device)
        threads = metadata.num_warps * 32
        if threads > most_threads:
            raise OutOfResources(threads, most_threads, "threads")
        self.handle, self.threads, self.shared = c_void_p(handle), c_uint(threads), c_uint(metadata.shared)
        self.start = _load().cuLaunchKernel
        # what Triton adds behind the arguments are places for notes that these kernels do not take
        assert metadata.global_scratch_size + metadata.profile_scratch_size == 0, "notes have their places elsewhere"
        self.count = count_parameters(made.asm["ptx"])


def count_parameters(ptx: str) -> int:
    """How many parameters a kernel has, by its text."""
    head = ptx[ptx.index(".entry") :]
    return len(re.findall(r"\.param\b", head[: head.index(")")]))


class Ready:
    """A kernel's launch with all numbers in their places but those that differ from call to call."""

    def __init__(self, function: Function, count: int, leaves: Sequence[tuple[str, Any]]) -> None:
        """`leaves` are types and numbers in the kernel's order; an `Open` one is told at each call."""
        self.function, self.count = function, c_uint(count)
        self.places = [x.place for _, x in leaves if isinstance(x, Open)]
        fixed = [_as_bits(kind, x) for kind, x in leaves if not isinstance(x, Open)]
        assert len(leaves) <= function.count, f"{function.name} has {function.count} parameters, not {len(leaves)}"
        opened, closed = iter(range(len(self.places))), iter(range(len(self.places), len(leaves)))
        order = [next(opened) if isinstance(x, Open) else next(closed) for _, x in leaves]
        # the places for notes stay empty
        self.order = order + list(range(len(leaves), function.count))
        self.numbers = [0] * len(self.places) + fixed + [0] * (function.count - len(leaves))
        self.rooms: list[tuple[Any, c_void_p]] = []

    def _make_room(self) -> tuple[Any, c_void_p]:
        numbers = (c_int64 * len(self.numbers))(*self.numbers)
        pointers = (c_void_p * len(self.order))(*(addressof(numbers) + 8 * at for at in self.order))
        # a pointer made by cast keeps alive what it points to
        return numbers, cast(pointers, c_void_p)

    def __call__(self, given: Sequence[int], stream: c_void_p) -> None:
        """Start it on these addresses and numbers, in the order of `places`."""
        try:
            # two threads may start it at a time
            room = self.rooms.pop()
        except IndexError:
            room = self._make_room()
        numbers, pointers = room
        numbers[: len(given)] = given
        function = self.function
        wide = self.count, _ONE, _ONE, function.threads, _ONE, _ONE, function.shared, stream, pointers, None
        code = function.start(function.handle, *wide)
        if code in _NO_CONTEXT:
            _enter(function.device)
            code = function.start(function.handle, *wide)
        self.rooms.append(room)
        if code:
            raise RuntimeError(f"the CUDA driver did not start the kernel {function.name}: error {code}.")


class Open:
    """The place of a number that each call tells anew."""

    def __init__(self, place: int) -> None:
        self.place = place


def flatten(given: Any, kinds: Any) -> Iterator[tuple[str, Any]]:
    """Arguments with their types, tuples taken apart; what a kernel is compiled for is no argument."""
    if isinstance(kinds, tuple | list):
        for one, kind in zip(given, kinds, strict=True):
            yield from flatten(one, kind)
    elif kinds != "constexpr":
        yield kinds, given


def _as_bits(kind: str, number: Any) -> int:
    """A number as the 64 bits whose first ones are read."""
    if kind == "fp32":
        # infinity, where a number is beyond its range
        return int.from_bytes(bytes(c_float(number)), "little")
    assert kind[0] in "iu", kind
    return int(number)


@cache
def _load() -> Any:
    # Python's lock is given away: a launch waits where the queue is full, maybe for one of another thread
    return CDLL(_NAME)


def _enter(device: int) -> None:
    """Make a device's context that of this thread."""
    context, driver = c_void_p(), _load()
    number = c_int()
    for code in (
        driver.cuDeviceGet(c_void_p(addressof(number)), c_int(device)),
        driver.cuDevicePrimaryCtxRetain(c_void_p(addressof(context)), number),
        driver.cuCtxSetCurrent(context),
    ):
        if code:
            raise RuntimeError(f"the CUDA driver has no context on device {device}: error {code}.")
