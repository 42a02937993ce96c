"""Kernels started without Triton's look at every argument, which takes longer than a small call runs.

Triton compiles a kernel anew for every kind of arguments, as for numbers that are multiples of 16, and finds out the
kind again at each launch, with much besides. Here a kind is told by a quicker look, and what was compiled for the first
call of a kind is started for the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

_MOST = 2**31
_compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}


def start(kernel: Any, count: int, given: Sequence[Any], heals: Sequence[bool | None], **constants: Any) -> None:
    """`kernel[(count,)](*given, **constants)`, once for each of `heals`, which is HEAL unless it is None."""
    if not isinstance(kernel, triton.JITFunction) or kernel.pre_run_hooks:
        # Triton's interpreter, or somebody who wants to see each launch
        for heal in heals:
            kernel[(count,)](*given, **constants, **({} if heal is None else {"HEAL": heal}))
        return
    kind = (kernel.fn, torch.cuda.current_device(), tuple(constants.values()), tuple(map(_sort, given)))
    for heal in heals:
        known = _compiled.get((kind, heal))
        if known is None:
            options = constants if heal is None else {**constants, "HEAL": heal}
            made = kernel[(count,)](*given, **options)
            rest = tuple(options[name] for name in kernel.arg_names[len(given) :])
            _compiled[kind, heal] = made, rest
        else:
            made, rest = known
            made[(count, 1, 1)](*given, *rest)


def _sort(x: Any) -> Any:
    """What Triton compiles for: no two arguments of one sort need different kernels."""
    if x is None:
        return None
    if isinstance(x, tuple):
        # the parts of a term are no terms; most of them are not there
        return tuple([None if part is None else _sort_part(part) for part in x])
    return _sort_part(x)


def _sort_part(x: Any) -> Any:
    kind = type(x)
    if kind is int:
        # a one is a constant; numbers of 32 bits, and multiples of 16, have kernels of their own
        return 1 if x == 1 else (x % 16 == 0, -_MOST <= x < _MOST, x < 2**63)
    return (x.dtype, x.data_ptr() % 16 == 0) if isinstance(x, Tensor) else x if kind is bool else kind
