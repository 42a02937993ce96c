"""What all calls of one kind share: constants, block shapes and compiled kernels, each found once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
import triton
from torch import Tensor

from regard.engine.backends.fused.borrowed import LOG2E, can_borrow, count_missing
from regard.engine.backends.fused.kernels.tiles import ALWAYS, FLAGGED, NEVER, Size
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.recipe import Recipe
from regard.engine.backends.fused.shapes import FEW, Shape, choose, count_blocks, fit, round_up
from regard.engine.backends.fused.start import Starter, start_all
from regard.engine.backends.fused.tune import pick

T = TypeVar("T")
IS_INTERPRETED = triton.knobs.runtime.interpret
# keys of a row for which one more look at them is cheap
_SHORT = 256
# products of numbers below which kernels let nothing through a mask at once; from it on, they look again at what came
# out ill, which takes one more launch, and half the time where nothing did
LEAST_WORK = 2**30
# kinds kept at a time
_MOST = 1024
_kinds: dict[Any, Any] = {}


class Kind:
    """A recipe and the sizes and strides of rows, with the kernels that were compiled for them."""

    def __init__(self, recipe: Recipe, query: Tensor, key: Tensor, value: Tensor, borrows: bool) -> None:
        self.recipe, self.device = recipe, query.device
        self.b, self.h, self.n, d = query.shape
        _, self.g, self.m, _ = key.shape
        e = value.shape[-1]
        self.widths = min(d, e), max(d, e)
        self.dtype, self.is_half = value.dtype, value.dtype != torch.float32
        # matrices of float32 are multiplied as three products of their parts, which lose no more than float32 does
        precision = "ieee" if IS_INTERPRETED else "tf32" if self.is_half else "tf32x3"
        # softmax scores come in powers of two
        self.unit = LOG2E if recipe.weigh == "softmax" else 1.0
        self.size = Size(self.h, self.h // self.g, self.n, self.m)
        # sequences times query heads
        self.count = self.b * self.h
        least_e = 1 if e == 1 and not recipe.is_dot else 16
        # what all kernels of a call are compiled for
        self.constants: dict[str, Any] = {
            "d": d, "e": e, "SCORE": recipe.score, "WEIGH": recipe.weigh, "UNIT": self.unit, "D": max(16, round_up(d)),
            "E": max(least_e, round_up(e)), "PRECISION": precision, "FAST": not IS_INTERPRETED,
        }  # fmt: skip
        # entmax must take the mean of its weights' gradient itself. Softmax may take output times its gradient, which
        # rounds otherwise than the gradient does; short rows can afford to be exact, and where one weight is all,
        # nothing is left of the difference
        short = recipe.takes_means and self.m <= _SHORT
        self.takes_own_means = short or recipe.weigh.startswith("entmax")
        # whether cuDNN's kernel may run it, and ours heal: forward alone, and where it learns
        self.may_borrow, self.may_borrow_learning = (
            borrows and can_borrow(recipe, query, key, value, learns=learns) for learns in (False, True)
        )
        # rows that it lacks for that
        self.missing = count_missing(recipe, query, key, value) if borrows else 0
        # in how many goes a kernel of ours does its blocks, and which ones: all, and again what came out ill
        self.goes = self._list_goes()
        self.is_random = recipe.draws or recipe.dropout > 0
        # passes by what is compiled of them for one kind
        self.forward: dict[Any, Any] = {}
        self.backward: dict[Any, Any] = {}
        self._shapes: dict[str, Shape] = {}

    def _list_goes(self) -> tuple[int, ...]:
        if not self.recipe.hides:
            return (NEVER.value,)
        work = self.count * self.n * self.m * (self.constants["D"] + self.constants["E"])
        return (ALWAYS.value,) if work < LEAST_WORK else (NEVER.value, FLAGGED.value)

    def ask(
        self, kernel: str, make: Callable[[Shape], Starter], held: Sequence[Any], heals_alone: bool = False
    ) -> Starter:
        """A kernel in its block shape. What heals alone leaves most blocks as they are: its time says nothing."""
        shape = self._shapes.get(kernel)
        if shape is None:
            launch = None if heals_alone else lambda x: start_all([make(x)], held)
            found = pick(kernel, self.recipe, self.is_half, self.widths, self.device, launch)
            shape = self._shapes[kernel] = self._fit(kernel, found)
        return make(shape)

    def _fit(self, kernel: str, shape: Shape) -> Shape:
        """A shape for these lengths: few queries need no long block, and few blocks should not be long."""
        if self.recipe.is_dot or kernel == "bias":
            return fit(shape, self.n, self.m)
        own = self.m if kernel == "keys" else self.n
        blocks = count_blocks(shape, kernel, (self.count, self.b * self.g), self.n, self.m)
        if own <= FEW or blocks < 2 * count_units(self.device):
            return choose(kernel, self.recipe, self.is_half, *self.widths, is_few=True)
        return shape


@cache
def count_units(device: torch.device) -> int:
    """How many programs a device runs side by side, at least."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 0


def find_kind(order: Order, borrows: bool = False) -> Kind:
    """The kind of an order: its recipe, and all of its tensors but their numbers; `borrows` lets cuDNN run it."""
    recipe, *tensors, marks = order
    # it knows no sink
    borrows = borrows and order.sink is None
    name = recipe, borrows, *(None if x is None else _describe(x) for x in (*tensors, *marks.values()))
    kind: Kind | None = recall(name)
    return keep(name, Kind(recipe, order.query, order.key, order.value, borrows)) if kind is None else kind


def recall(name: Any) -> Any:
    """What is kept of calls that differ in nothing but the numbers in their tensors, as their kind."""
    return _kinds.get(name)


def keep(name: Any, found: T) -> T:
    """Keep what was found of such calls."""
    if len(_kinds) >= _MOST:
        _kinds.clear()
    _kinds[name] = found
    return found


def _describe(x: Tensor) -> tuple[Any, ...]:
    return x.dtype, x.device, x.shape, x.stride(), x.data_ptr() % 16
