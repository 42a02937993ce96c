"""The tiles of `tiled` through torch.compile, by explicit choice: the first call of a new kind takes a while.

Shapes that change make torch compile once more, for any shape; compiled code is kept on disk by torch itself.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.core import Online, Pair, Pointwise, Row, Tile
from regard.core.pairs import Vjp
from regard.engine.call import Call, Cost
from regard.engine.double_backward import Again
from regard.engine.tiles import steps
from regard.engine.tiles.cost import estimate_tiles
from regard.engine.tiles.function import attend_by_tiles
from regard.engine.tiles.work import Work

# rows in the compute dtype, a key head for each query head; NaN under a mask is `attend`'s to remove
LIFTS, HANDLES_NAN, TWICE_DIFFERENTIABLE, AUTOCASTS, TRACEABLE = True, False, True, True, False
errs = None
# fused features never reach memory, so tiles are larger than those of `tiled`
BUDGET = 2**19
_log = logging.getLogger("regard")


def has_compiler() -> bool:
    """Whether torch.compile finds a C++ compiler for the CPU."""
    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))


def refuse(call: Call) -> str | None:
    if call.sizes.device.type == "cpu" and not has_compiler():
        return "torch.compile needs a C++ compiler (g++ or clang++) on the PATH."
    return None


def decline(call: Call) -> str | None:
    return "it compiles on its first call, which takes a while: only by backend='compiled'."


def estimate(call: Call) -> Cost:
    return estimate_tiles(call, BUDGET)


def run(call: Call, query: Tensor, key: Tensor, value: Tensor, _: Again | None = None) -> Tensor:
    query, key, pair = call.score.prepare(query, key)
    return attend_by_tiles(Work(call, CompiledPair(pair), STEPS, BUDGET, pair.tensors), query, key, value)


class CompiledPair(Pair):
    """Another `Pair` in the form that a compiler fuses."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.tensors = pair.tensors
        self.keeps_heads, self.closes_over = pair.keeps_heads, pair.closes_over
        self.constants, self.draws, self.depth = pair.constants, pair.draws, pair.depth

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        return self.pair(query, key, *tensors)

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        return self.pair.expression(query, key, *tensors)

    def vjp(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Vjp]:
        return _call(_express, self.pair, query, key, tensors), lambda grad: _call(
            _gradients, self.pair, query, key, grad, tensors
        )


def _express(pair: Pair, query: Tensor, key: Tensor, tensors: tuple[Tensor, ...]) -> Tensor:
    return pair.expression(query, key, *tensors)


def _gradients(
    pair: Pair, query: Tensor, key: Tensor, grad: Tensor, tensors: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    return pair.gradients(query, key, grad, *tensors)


def _backward(
    pair: CompiledPair, weigh: Online | Pointwise, query: Tensor, key: Tensor, value: Tensor,
    tensors: tuple[Tensor, ...], extras: steps.Extras, grad: Tensor, mean: Tensor | None, stat: Tensor | None,
) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...]]:  # fmt: skip
    bias, allowed, keep = extras
    scores = pair.fill(query, key, *tensors).to(value.dtype)
    scores = scores if bias is None else scores + bias
    dvalue, dscores = steps.gradients(weigh, scores, value, allowed, keep, grad, mean, stat, None)
    return dvalue, dscores, pair.pair.gradients(query, key, dscores.to(query.dtype), *tensors)


def _online(*args: Any) -> Any:
    return _call(steps.online, *args)


def _pointwise(*args: Any) -> Any:
    return _call(steps.pointwise, *args)


def _row(
    pair: CompiledPair, weigh: Row, query: Tensor, key: Tensor, value: Tensor, tensors: tuple[Tensor, ...],
    extras: steps.Extras, tile: Tile,
) -> Tensor:  # fmt: skip
    # solving a row is sorting, which no compiler fuses: the scores are compiled, the rest runs as it is
    bias, allowed, keep = extras
    scores = _call(_express, pair.pair, query, key, tensors).to(value.dtype)
    scores = scores if bias is None else scores + bias
    return steps.zero_out(weigh.solve(steps.mask_scores(scores, allowed), tile), None, keep) @ value


def _step_backward(pair: CompiledPair, weigh: Online | Pointwise | Row, *args: Any) -> Any:
    if pair.closes_over:
        # a compiler differentiates by arguments: what a function closes over would be missed
        return steps.backward(pair.pair, weigh, *args)
    if isinstance(weigh, Row):
        return steps.backward(pair, weigh, *args)
    # only rows need to know their tile, and a new tile would be a new program
    return _call(_backward, pair, weigh, *args[:-1])


STEPS = steps.Steps(_online, _pointwise, _row, _step_backward, replays=False)


def _plain(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(part.contiguous() if isinstance(part, Tensor) else part for part in parts)


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function compiled, and log how long compiling took; falling back to eager is an error."""
    start = time.perf_counter()
    # with dynamic shapes, torch 2.13 miscompiles a mask whose keys are not its innermost stride: hand it plain layouts
    args = tuple(_plain(arg) if isinstance(arg, tuple) else arg for arg in args)
    with torch._dynamo.config.patch(recompile_limit=256, fail_on_recompile_limit_hit=True):
        result = _compile(function)(*args)
    took = time.perf_counter() - start
    if took > 2.0:
        _log.warning("compiled %s in %.0f s; torch keeps it for the next time", function.__name__.strip("_"), took)
    return result
