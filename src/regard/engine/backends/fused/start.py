"""Kernels started without Triton's look at every argument, which takes longer than a small call runs.

Triton compiles a kernel anew for every sort of arguments, as for numbers that are multiples of 16, and finds out the
sort again at each launch, with much besides. Here a kernel is compiled for the sort of its pointers and strides; how
many positions there are, and where they stand, it is told as any number: one kernel serves all lengths. What was
compiled is started with addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import triton
from torch import Tensor

from regard.engine.backends.fused.kernels.bits import Noise
from regard.engine.backends.fused.kernels.masks import Mask
from regard.engine.backends.fused.kernels.tiles import Size
from regard.engine.backends.fused.kernels.weighs import Stat

# how a tensor is handed over: itself, for Triton to look at, or as an address
At = Callable[[Tensor], Any]
POINT: At = Tensor.data_ptr
# numbers of 32 and of 64 bits that are no multiple of anything, and not one
_ANY, _ANY_LONG = 2**20 + 7, 2**40 + 7
_MOST = 2**31
_launches: dict[tuple[Any, ...], Launch] = {}


def as_tensor(x: Tensor) -> Tensor:
    """For Triton to look at."""
    return x


class Launch:
    """A compiled kernel with its constants: started on addresses, where nobody has to look at them again."""

    def __init__(self, made: Any, rest: tuple[Any, ...]) -> None:
        # compiled by a thread; asked for a grid, it is loaded onto the device
        made = made.result() if hasattr(made, "result") else made
        made[(1, 1, 1)]
        self.made, self.rest = made, rest
        self.run, self.function, self.packed = made.run, made.function, made.packed_metadata
        self.hook = triton.knobs.runtime.launch_enter_hook

    def __call__(self, count: int, given: Sequence[Any]) -> None:
        if getattr(self.hook, "calls", None):
            # a profiler wants to be told
            self.made[(count, 1, 1)](*given, *self.rest)
            return
        stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
        self.run(count, 1, 1, stream, self.function, self.packed, None, None, None, *given, *self.rest)


def is_compiled(kernel: Any) -> bool:
    """Whether a kernel is compiled, not interpreted, and nobody wants to see each launch."""
    return isinstance(kernel, triton.JITFunction) and not kernel.pre_run_hooks


class Starter:
    """A kernel as calls of one kind start it: how many programs, its constants, and itself once it is compiled."""

    def __init__(self, kernel: Any, count: int, constants: dict[str, Any]) -> None:
        self.kernel, self.count, self.constants = kernel, count, constants
        self.launch: Launch | None = None


# makes a kernel's arguments, with each tensor handed over in some way
Give = Callable[[At], Sequence[Any]]


def start_all(*starts: tuple[Starter, Give]) -> None:
    """Start kernels in this order; those that are new are compiled side by side."""
    pointed: Sequence[Any] = ()
    last = None
    for at, (starter, give) in enumerate(starts):
        if starter.launch is None:
            if not is_compiled(starter.kernel):
                # Triton's interpreter, or somebody who wants to see each launch
                starter.kernel[(starter.count,)](*give(as_tensor), **starter.constants)
                continue
            compile_new(starts[at:])
            assert starter.launch is not None, "it was compiled"
        if give is not last:
            pointed, last = give(POINT), give
        starter.launch(starter.count, pointed)


def compile_new(starts: Sequence[tuple[Starter, Give]]) -> None:
    """Compile those kernels side by side that were not yet for arguments of their sort."""
    named, fresh = [], {}
    for starter, give in starts:
        given = give(as_tensor)
        constants = tuple(starter.constants.items())
        name = starter.kernel.fn, torch.cuda.current_device(), constants, tuple(map(_sort, given))
        named.append((starter, name))
        if name not in _launches:
            fresh[name] = starter, given
    if fresh:
        with _compile_side_by_side(len(fresh)):
            made = {
                name: starter.kernel.warmup(*map(_generalise, given), grid=(1,), **starter.constants)
                for name, (starter, given) in fresh.items()
            }
        for name, (starter, given) in fresh.items():
            rest = tuple(starter.constants[x] for x in starter.kernel.arg_names[len(given) :])
            _launches[name] = Launch(made[name], rest)
    for starter, name in named:
        starter.launch = _launches[name]


@contextmanager
def _compile_side_by_side(count: int) -> Iterator[None]:
    if count == 1:
        yield
        return
    with ThreadPoolExecutor(count) as pool, triton.AsyncCompileMode(pool):
        yield


def start(kernel: Any, count: int, given: Sequence[Any], **constants: Any) -> None:
    """`kernel[(count,)](*given, **constants)`."""
    start_all((Starter(kernel, count, constants), lambda at: given))


def _generalise(x: Any) -> Any:
    """An argument of the same sort, with no number in it that a kernel would be compiled for in vain."""
    if not isinstance(x, Size | Mask | Stat | Noise):
        return x
    return type(x)(*(part if type(part) is not int else _ANY if _is_short(part) else _ANY_LONG for part in x))


def _is_short(number: int) -> bool:
    return -_MOST <= number < _MOST


def _sort(x: Any) -> Any:
    """What a kernel is compiled for: no two arguments of one sort need different ones."""
    if isinstance(x, Size | Mask | Stat | Noise):
        return tuple([_sort_part(part) if type(part) is not int else _is_short(part) for part in x])
    if isinstance(x, tuple):
        # the parts of a term are no terms; most of them are not there
        return tuple([_sort_part(part) for part in x])
    return _sort_part(x)


def _sort_part(x: Any) -> Any:
    kind = type(x)
    if kind is int:
        # a one is a constant; numbers of 32 bits, and multiples of 16, have kernels of their own
        return 1 if x == 1 else (x % 16 == 0, _is_short(x), x < 2**63)
    if kind is bool:
        # True is one, but no number of 32 bits
        return kind, x
    return (x.dtype, x.data_ptr() % 16 == 0) if isinstance(x, Tensor) else None if x is None else kind
