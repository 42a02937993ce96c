"""Kernels compiled once for arguments of a sort, and started again on addresses.

Triton compiles a kernel anew for every sort of arguments, as for numbers that are multiples of 16, and finds out the
sort again at each launch, with much besides. Here a kernel is compiled for the sort of its pointers and strides; how
many positions there are, and where they stand, it is told as any number: one kernel serves all lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import c_void_p
from operator import itemgetter
from typing import Any

import torch
import triton
from torch import Tensor

from regard.engine.backends.fused.driver import Function, Open, Ready, flatten
from regard.engine.backends.fused.kernels.bits import Noise
from regard.engine.backends.fused.kernels.masks import Mask
from regard.engine.backends.fused.kernels.tiles import Size
from regard.engine.backends.fused.kernels.weighs import Stat
from regard.engine.backends.fused.wake import wait

# numbers of 32 and of 64 bits that are no multiple of anything, and not one
_ANY, _ANY_LONG = 2**20 + 7, 2**40 + 7
_MOST = 2**31
_functions: dict[tuple[Any, ...], Function] = {}


class Spot:
    """A tensor in the place where a kernel wants it, or a number that differs from call to call."""

    def __init__(self, place: int, held: Any) -> None:
        self.place, self.held = place, held


class Starter:
    """A kernel as calls of one kind start it: how many programs, its constants, and itself once it is compiled."""

    def __init__(self, kernel: Any, count: int, constants: dict[str, Any], given: tuple[Any, ...]) -> None:
        """`given` are its arguments, with a spot wherever calls differ."""
        self.kernel, self.count, self.constants, self.given = kernel, count, constants, given
        self.ready: Ready | None = None
        # in the order in which the launch wants them
        self.pick: Callable[[Sequence[int]], Sequence[int]] = tuple

    def start(self, at: Sequence[int], stream: c_void_p) -> None:
        """Start it on the addresses of all tensors of a call."""
        assert self.ready is not None, "it was compiled"
        self.ready(self.pick(at), stream)

    def tell(self, held: Sequence[Any]) -> None:
        """Start it by Triton, on these tensors, where somebody wants to see it: its interpreter, or a profiler."""
        given = hand_over(self.given, lambda spot: held[spot.place])
        if not is_compiled(self.kernel):
            self.kernel[(self.count,)](*given, **self.constants)
            return
        assert self.ready is not None, "it was compiled"
        rest = (self.constants[name] for name in self.kernel.arg_names[len(given) :])
        self.ready.function.made[(self.count, 1, 1)](*given, *rest)


def is_compiled(kernel: Any) -> bool:
    """Whether a kernel is compiled, not interpreted, and nobody wants to see each launch."""
    return isinstance(kernel, triton.JITFunction) and not kernel.pre_run_hooks


def is_told() -> bool:
    """Whether a profiler wants to be told of launches."""
    return bool(getattr(triton.knobs.runtime.launch_enter_hook, "calls", None))


def compile_new(starters: Sequence[Starter]) -> None:
    """Make kernels ready; those that were not compiled yet for arguments of their sort are compiled side by side."""
    named, fresh = [], {}
    for starter in starters:
        if starter.ready is not None or not is_compiled(starter.kernel):
            continue
        given = hand_over(starter.given, lambda spot: spot.held)
        constants = tuple(starter.constants.items())
        name = starter.kernel.fn, torch.cuda.current_device(), constants, tuple(map(_sort, given))
        named.append((starter, name))
        if name not in _functions:
            fresh[name] = starter, given
    if fresh:
        wait()
        with _compile_side_by_side(len(fresh)):
            made = {
                name: starter.kernel.warmup(*map(_generalise, given), grid=(1,), **starter.constants)
                for name, (starter, given) in fresh.items()
            }
        for name, one in made.items():
            _functions[name] = Function(one.result() if hasattr(one, "result") else one)
    for starter, name in named:
        _make_ready(starter, _functions[name])


def _make_ready(starter: Starter, function: Function) -> None:
    kinds = tuple(function.made.src.signature.values())[: len(starter.given)]
    given = hand_over(starter.given, lambda spot: Open(spot.place))
    starter.ready = Ready(function, starter.count, list(flatten(given, kinds)))
    places = starter.ready.places
    starter.pick = itemgetter(*places) if len(places) > 1 else lambda at: [at[place] for place in places]


@contextmanager
def _compile_side_by_side(count: int) -> Iterator[None]:
    if count == 1:
        yield
        return
    with ThreadPoolExecutor(count) as pool, triton.AsyncCompileMode(pool):
        yield


def start(kernel: Any, count: int, given: Sequence[Any], **constants: Any) -> None:
    """`kernel[(count,)](*given, **constants)`."""
    held: list[Any] = []

    def place(x: Any) -> Any:
        if isinstance(x, Tensor):
            held.append(x)
            return Spot(len(held) - 1, x)
        return x

    starter = Starter(kernel, count, constants, _map(tuple(given), place))
    start_all([starter], held)


def start_all(starters: Sequence[Starter], held: Sequence[Any]) -> None:
    """Start kernels in this order, on the tensors and numbers of a call."""
    compile_new(starters)
    if is_told() or not all(is_compiled(starter.kernel) for starter in starters):
        for starter in starters:
            starter.tell(held)
        return
    stream = find_stream()
    at = [x.data_ptr() if isinstance(x, Tensor) else x for x in held]
    for starter in starters:
        starter.start(at, stream)


def find_stream() -> c_void_p:
    """Torch's stream of this thread."""
    return c_void_p(torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice()))


def hand_over(given: tuple[Any, ...], how: Callable[[Spot], Any]) -> tuple[Any, ...]:
    """Arguments with something else in their spots."""
    changed: tuple[Any, ...] = _map(given, lambda x: how(x) if isinstance(x, Spot) else x)
    return changed


def _map(x: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(x, tuple):
        return change(x)
    parts = [_map(part, change) for part in x]
    # Triton knows the parts of a named tuple by their names
    return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)


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
