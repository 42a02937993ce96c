"""Kernels started without Triton's look at every argument, which takes longer than a small call runs.

Triton compiles a kernel anew for every sort of arguments, as for numbers that are multiples of 16, and finds out the
sort again at each launch, with much besides. Here a kernel is compiled once for what it needs to know, which strides and
pointers are; how many positions there are, and where they stand, it is told as any number, so that one kernel serves
all lengths. What was compiled is started with addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from regard.engine.backends.fused.kernels.masks import Mask
from regard.engine.backends.fused.kernels.tiles import Size
from regard.engine.backends.fused.kernels.weighs import Stat

# how a tensor is handed over: itself, for Triton to look at, or as an address
At = Callable[[Tensor], Any]
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
        stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        self.run(count, 1, 1, stream, self.function, self.packed, None, None, None, *given, *self.rest)


def is_compiled(kernel: Any) -> bool:
    """Whether a kernel is compiled, not interpreted, and nobody wants to see each launch."""
    return isinstance(kernel, triton.JITFunction) and not kernel.pre_run_hooks


class Start(NamedTuple):
    """A kernel to be started: how many programs, what it is given as tensors become what a launch takes, and constants."""

    kernel: Any
    count: int
    given: Callable[[At], Sequence[Any]]
    constants: dict[str, Any]
    # tells apart what is compiled of one kernel for one kind of call
    variant: Any = None


def compile_launches(starts: Sequence[Start]) -> list[Launch]:
    """The kernels for arguments of these sorts, compiled side by side unless they were before."""
    names, fresh = [], {}
    for one in starts:
        given = one.given(as_tensor)
        name = one.kernel.fn, torch.cuda.current_device(), tuple(one.constants.items()), tuple(map(_sort, given))
        names.append(name)
        if name not in _launches:
            fresh[name] = one, given
    if fresh:
        with ThreadPoolExecutor(len(fresh)) as pool, triton.AsyncCompileMode(pool):
            made = {
                name: one.kernel.warmup(*map(_generalise, given), grid=(1,), **one.constants)
                for name, (one, given) in fresh.items()
            }
        for name, (one, given) in fresh.items():
            rest = tuple(one.constants[x] for x in one.kernel.arg_names[len(given) :])
            _launches[name] = Launch(made[name], rest)
    return [_launches[name] for name in names]


def start(kernel: Any, count: int, given: Sequence[Any], **constants: Any) -> None:
    """`kernel[(count,)](*given, **constants)`."""
    if is_compiled(kernel):
        (launch,) = compile_launches([Start(kernel, count, lambda at: given, constants)])
        launch(count, given)
    else:
        kernel[(count,)](*given, **constants)


def _generalise(x: Any) -> Any:
    """An argument of the same sort, with no number in it that a kernel would be compiled for in vain."""
    if not isinstance(x, Size | Mask | Stat):
        return x
    return type(x)(*(part if type(part) is not int else _ANY if _is_short(part) else _ANY_LONG for part in x))


def _is_short(number: int) -> bool:
    return -_MOST <= number < _MOST


def _sort(x: Any) -> Any:
    """What a kernel is compiled for: no two arguments of one sort need different ones."""
    if isinstance(x, Size | Mask | Stat):
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
    return (x.dtype, x.data_ptr() % 16 == 0) if isinstance(x, Tensor) else x if kind is bool or x is None else kind
