"""One call as the kernels take it: the terms as named tuples of pointers and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from regard.engine.backends.fused.kernels.biases import Bias
from regard.engine.backends.fused.kernels.masks import Mask
from regard.engine.backends.fused.kernels.prepare import choose_form, lay_out_features, measure_rows
from regard.engine.backends.fused.kernels.scores import BLOCK, Score
from regard.engine.backends.fused.kernels.tiles import Rows, Size
from regard.engine.backends.fused.kernels.weighs import Stat, Weigh
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.shapes import Shape, divide_up, round_up
from regard.engine.backends.fused.tune import pick

LOG2E = math.log2(math.e)
IS_INTERPRETED = triton.knobs.runtime.interpret
# no block has more positions
_BEHIND = 1024
# keys of a row for which one more look at them is cheap
_SHORT = 256


class Noise(NamedTuple):
    """Dropout: which weights fall, and what the others grow by."""

    seed: Any = None
    dropout: Any = None
    grown: Any = None


@dataclass(frozen=True, eq=False)
class Job(Order):
    """An order at work, with seeds for dropout and for draws: what each kernel is handed."""

    seed: int
    draw_seed: int

    @property
    def is_half(self) -> bool:
        return self.value.dtype != torch.float32

    @property
    def precision(self) -> str:
        """How matrices are multiplied: float32 by three products of its parts, which lose no more than float32 does."""
        if IS_INTERPRETED:
            return "ieee"
        return "tf32" if self.is_half else "tf32x3"

    @cached_property
    def unit(self) -> float:
        """Softmax scores come in powers of two."""
        return LOG2E if self.recipe.weigh == "softmax" else 1.0

    @cached_property
    def size(self) -> Size:
        heads = self.query.shape[1]
        return Size(heads, heads // self.key.shape[1], self.query.shape[2], self.key.shape[2])

    @property
    def count(self) -> int:
        """Sequences times query heads."""
        return self.query.shape[0] * self.query.shape[1]

    @cached_property
    def score(self) -> Score:
        recipe = self.recipe
        if recipe.is_dot:
            scale = recipe.scale if recipe.cap is not None else recipe.scale * self.unit
            return Score(scale=scale, slope=recipe.scale, cap=recipe.cap)
        assert self.weight is not None
        weight = self.weight.float().contiguous()
        wide = 0 if weight.shape[0] == 1 else weight.shape[1]
        fields: dict[str, Any] = {"weight": weight, "weight_h": wide}
        if recipe.score == "tanh":
            fields |= self._measure()
        names = ("queries", "keys")
        fields |= {n: self._lay_out(x, fields.get("form")) for n, x in zip(names, (self.query, self.key), strict=True)}
        return Score(**fields)

    def _measure(self) -> dict[str, Tensor]:
        """The largest numbers, block by block, and the form of tanh that they allow; none of it leaves the device."""
        d = self.query.shape[-1]
        counts = [x.shape[0] * x.shape[1] * divide_up(x.shape[2], BLOCK.value) for x in (self.query, self.key)]
        most = torch.empty(sum(counts), dtype=torch.float32, device=self.query.device)
        form = torch.empty(1, dtype=torch.int32, device=self.query.device)
        parts = most.split(counts)
        for x, part in zip((self.query, self.key), parts, strict=True):
            measure_rows[(part.numel(),)](as_rows(x), part, x.shape[1], x.shape[2], d, round_up(d))
        choose_form[(1,)](most, most.numel(), form, self.is_half, 1024)
        # float32 would feel the roundings of a shared division
        near = {"most_queries": parts[0], "most_keys": parts[1]} if self.is_half else {}
        return {"form": form, **near}

    def _lay_out(self, x: Tensor, form: Tensor | None) -> Tensor:
        """(b, h, positions, d) feature by feature, for tanh in the form that was chosen."""
        b, h, count, d = x.shape
        # room behind, since blocks read past the last position without looking
        size = b * h * ((d + 3) // 4 * 4) * count
        make = torch.empty if d % 4 == 0 else torch.zeros
        features = make(size + _BEHIND, dtype=torch.float32, device=x.device)[:size].view(b, h, -1, count)
        grid = b * h * divide_up(count, 64)
        lay_out_features[(grid,)](as_rows(x), features, form, h, count, d, round_up(d), 64, form is not None)
        return features

    @cached_property
    def weigh(self) -> Weigh:
        kind, number = self.recipe.weigh, self.recipe.power
        if kind.startswith("relu"):
            return Weigh(scale=number)
        if kind == "sigmoid":
            return Weigh(shift=number)
        if kind.startswith("entmax"):
            return Weigh(steep=number - 1, power=1 / (number - 1))
        if self.sink is not None:
            return Weigh(sink=self.sink.reshape(-1), sink_h=0 if self.sink.numel() == 1 else 1)
        return Weigh()

    @cached_property
    def mask(self) -> Mask:
        recipe, marks = self.recipe, self.marks
        fields: dict[str, Any] = {"before": recipe.before, "after": recipe.after}
        if recipe.grid is not None:
            fields |= dict(zip(("width", "rows", "columns"), recipe.grid, strict=True))
        for name in marks:
            if name in ("lengths", "row_lengths"):
                lengths = marks[name]
                fields |= {"lengths": lengths, "lengths_b": lengths.stride(0)}
                fields["lengths_i"] = lengths.stride(1) if name == "row_lengths" else None
            elif name == "bits":
                bits = marks[name]
                b, h, _, _ = _list_strides(bits)
                fields |= {"bits": bits, "bits_b": b, "bits_h": h, "words": bits.shape[-1]}
            elif name != "buckets":
                fields[name] = marks[name]
        for name, of in (
            ("query_ids_b", "query_ids"),
            ("key_ids_b", "key_ids"),
            ("ends_b", "first"),
            ("heads_b", "top"),
        ):
            if of in marks:
                fields[name] = 0 if marks[of].shape[0] == 1 else marks[of].shape[1]
        return Mask(**fields)

    @cached_property
    def added(self) -> Bias:
        """What position adds, for the kernels."""
        if self.bias is None:
            return Bias()
        if self.recipe.bias == "slopes":
            return Bias(slopes=self.bias, place=self.recipe.place)
        if self.recipe.bias == "buckets":
            return Bias(diagonals=self.bias.float()[:, self.marks["buckets"]].contiguous())
        return Bias(self.bias, *_list_strides(self.bias))

    @cached_property
    def noise(self) -> Noise:
        if not self.recipe.dropout:
            return Noise()
        return Noise(self.seed, self.recipe.dropout, 1 / (1 - self.recipe.dropout))

    @cached_property
    def constants(self) -> dict[str, Any]:
        """What all kernels of a call are compiled for."""
        d, e = self.query.shape[-1], self.value.shape[-1]
        least_e = 1 if e == 1 and not self.recipe.is_dot else 16
        return {
            "d": d, "e": e, "SCORE": self.recipe.score, "WEIGH": self.recipe.weigh, "UNIT": self.unit,
            "D": max(16, round_up(d)), "E": max(least_e, round_up(e)),
            "PRECISION": self.precision, "FAST": not IS_INTERPRETED,
        }  # fmt: skip

    def pick(self, kernel: str, launch: Callable[[Shape], Any]) -> Shape:
        """The shape of a kernel, no longer than the call: few queries need no long block."""
        d, e = self.query.shape[-1], self.value.shape[-1]
        shape = pick(kernel, self.recipe, self.is_half, (min(d, e), max(d, e)), self.query.device, launch)
        sides = (max(16, round_up(x.shape[2])) for x in (self.query, self.key))
        rows, keys = (min(most, side) for most, side in zip((shape.rows, shape.keys), sides, strict=True))
        return Shape(rows, keys, shape.warps, shape.stages)

    @property
    def takes_own_means(self) -> bool:
        """Whether rows take the mean of their weights' gradient by themselves.

        Entmax must. Softmax may take output times its gradient, which rounds otherwise than the gradient does; short
        rows can afford to be exact, and where one weight is all, nothing is left of the difference.
        """
        short = self.recipe.takes_means and self.key.shape[2] <= _SHORT
        return short or self.recipe.weigh.startswith("entmax")

    def make_flags(self, count: int) -> Tensor | None:
        """Room for a word from each program whether it met NaN or infinity, where a mask may hide some."""
        return torch.empty(count, dtype=torch.int32, device=self.query.device) if self.recipe.hides else None

    def list_passes(self) -> tuple[bool, ...]:
        """Once; and once more to heal what came out ill."""
        return (False, True) if self.recipe.hides else (False,)

    def terms(self) -> tuple[Any, ...]:
        return self.score, self.weigh, self.mask, self.added

    def rows(self, *tensors: Tensor) -> list[Rows]:
        return [as_rows(x) for x in tensors]


def as_rows(x: Tensor) -> Rows:
    return Rows(x, *x.stride())


def _list_strides(x: Tensor) -> list[int]:
    """Strides, zero along axes of one."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True)]


def as_stat(stat: Tensor | None) -> Stat | None:
    return None if stat is None else Stat(stat, stat[0].numel())
