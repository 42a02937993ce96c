"""A recipe and tensors as the arguments of kernels, and the kernels called."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from regard.engine.backends.fused.kernels.bias import Part, pull_bias
from regard.engine.backends.fused.kernels.biases import Bias
from regard.engine.backends.fused.kernels.forward import attend_forward
from regard.engine.backends.fused.kernels.keys import pull_keys
from regard.engine.backends.fused.kernels.masks import Mask
from regard.engine.backends.fused.kernels.prepare import choose_tier, lay_out_features, measure_rows
from regard.engine.backends.fused.kernels.pull import Features
from regard.engine.backends.fused.kernels.queries import pull_queries, take_means
from regard.engine.backends.fused.kernels.scores import Score
from regard.engine.backends.fused.kernels.solve import solve_rows
from regard.engine.backends.fused.kernels.tiles import Rows, Size
from regard.engine.backends.fused.kernels.weighs import Stat, Weigh
from regard.engine.backends.fused.recipe import Recipe
from regard.engine.backends.fused.shapes import Shape, choose

LOG2E = math.log2(math.e)


class Noise(NamedTuple):
    """Dropout: which weights fall, and what the others grow by."""

    seed: Any = None
    dropout: Any = None
    grown: Any = None


@dataclass(frozen=True, eq=False)
class Job:
    """One call: tensors (b, heads, positions, width), what the terms hold, and the recipe."""

    recipe: Recipe
    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor | None
    sink: Tensor | None
    bias: Tensor | None
    marks: dict[str, Tensor]
    seed: int

    @property
    def is_half(self) -> bool:
        return self.value.dtype != torch.float32

    @property
    def weigh_kind(self) -> str:
        return "softmax32" if self.recipe.weigh == "softmax" and not self.is_half else self.recipe.weigh

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
        queries, keys, tier = self._lay_out()
        wide = 0 if self.weight.shape[0] == 1 else self.weight.shape[1]
        weight = self.weight.float().contiguous()
        return Score(weight=weight, weight_h=wide, queries=queries, keys=keys, tier=tier)

    def _lay_out(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features by feature, and which form of tanh fits them."""
        d, block, tier = self.query.shape[-1], 64, None
        pads = triton.next_power_of_2(d)
        grids = [x.shape[0] * x.shape[1] * triton.cdiv(x.shape[2], block) for x in (self.query, self.key)]
        if self.recipe.score == "tanh":
            most = torch.empty(sum(grids), dtype=torch.float32, device=self.query.device)
            tier = torch.empty(1, dtype=torch.int32, device=self.query.device)
            parts = zip((self.query, self.key), most.split(grids), grids, strict=True)
            for x, part, grid in parts:
                measure_rows[(grid,)](as_rows(x), part, x.shape[1], x.shape[2], d, pads, block)
            choose_tier[(1,)](most, grids[0], sum(grids), tier, self.is_half, 1024)
        made = []
        for x, grid in zip((self.query, self.key), grids, strict=True):
            b, h, count, _ = x.shape
            make = torch.empty if d % 4 == 0 else torch.zeros
            features = make((b, h, (d + 3) // 4 * 4, count), dtype=torch.float32, device=x.device)
            lay_out_features[(grid,)](as_rows(x), features, tier, h, count, d, pads, block, tier is not None)
            made.append(features)
        return made[0], made[1], tier

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
            "d": d, "e": e, "SCORE": self.recipe.score, "WEIGH": self.weigh_kind, "UNIT": self.unit,
            "D": max(16, triton.next_power_of_2(d)), "E": max(least_e, triton.next_power_of_2(e)),
            "PRECISION": "tf32" if self.is_half else "ieee", "FAST": not triton.knobs.runtime.interpret,
        }  # fmt: skip

    def shape(self, kernel: str) -> Shape:
        return choose(kernel, self.recipe, self.is_half, max(self.query.shape[-1], self.value.shape[-1]))

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


def run_forward(job: Job, keeps: bool) -> tuple[Tensor, Tensor | None]:
    """The output, and the rows' statistic where a backward pass will need it."""
    b, h, n, _ = job.query.shape
    device = job.query.device
    out = torch.empty(b, h, n, job.value.shape[-1], dtype=job.value.dtype, device=device)
    solves = job.recipe.weigh.startswith("entmax") or job.recipe.weigh == "hard"
    stat = torch.empty(2, b, h, n, device=device) if solves or (keeps and job.recipe.keeps_rows) else None
    constants = dict(job.constants)
    if solves:
        shape = job.shape("solve")
        draws = Noise(job.seed) if job.recipe.draws else Noise()
        needed = {name: constants[name] for name in ("d", "SCORE", "WEIGH", "D", "PRECISION", "FAST")}
        solve_rows[(job.count * triton.cdiv(n, shape.rows),)](
            *job.rows(job.query, job.key), as_stat(stat), *job.terms(), draws, job.size, **needed, ROWS=shape.rows,
            KEYS=shape.keys, **shape.options,
        )  # fmt: skip
    shape = job.shape("forward")
    grid = job.count * triton.cdiv(n, shape.rows)
    folds = job.recipe.is_dot and job.unit != 1 and job.recipe.cap is None and job.bias is None and job.recipe.scale > 0
    flags = torch.empty(grid, dtype=torch.int32, device=device) if job.recipe.hides else None
    for heal in (False, True)[: 2 if job.recipe.hides else 1]:
        attend_forward[(grid,)](
            *job.rows(job.query, job.key, job.value, out), as_stat(stat), flags, *job.terms(), job.noise, job.size,
            **constants, FOLD=folds, ROWS=shape.rows, KEYS=shape.keys, HEAL=heal, **shape.options,
        )  # fmt: skip
    return out, stat


@dataclass
class Grads:
    """Gradients of query, key, value, and of what the terms hold where it was asked for."""

    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor | None = None
    sink: Tensor | None = None
    bias: Tensor | None = None


def run_backward(
    job: Job, grad: Tensor, out: Tensor, stat: Tensor | None, wants_weight: bool, wants_bias: bool
) -> Grads:
    means = None
    b, h, n, _ = job.query.shape
    if job.recipe.weigh.startswith("entmax") or job.recipe.takes_means:
        means = torch.empty(b, h, n, device=grad.device)
    if job.recipe.takes_means:
        e, width = job.constants["e"], triton.next_power_of_2(job.constants["e"])
        take_means[(job.count * triton.cdiv(n, 32),)](*job.rows(out, grad), means, job.size, e, width, 32)
    dquery, dweight = _pull_queries(job, grad, stat, means, wants_weight)
    dkey, dvalue = _pull_keys(job, grad, stat, means)
    grads = Grads(dquery, dkey, dvalue, dweight)
    if job.sink is not None:
        assert stat is not None and means is not None
        share = torch.exp2(job.sink.float().reshape(-1, 1) * LOG2E - stat[0])
        share = share if job.is_half else share * stat[1]
        grads.sink = -(share * means).sum((0, 2)).sum_to_size(job.sink.numel()).view(job.sink.shape)
    if wants_bias:
        grads.bias = _pull_bias(job, grad, stat, means)
    return grads


def _pull_queries(
    job: Job, grad: Tensor, stat: Tensor | None, means: Tensor | None, wants_weight: bool
) -> tuple[Tensor, Tensor | None]:
    dquery, features = _make_room(job, job.query, job.score.queries, wants_weight)
    shape = job.shape("queries")
    grid = job.count * triton.cdiv(job.query.shape[2], shape.rows)
    flags = torch.empty(grid, dtype=torch.int32, device=grad.device) if job.recipe.hides else None
    for heal in (False, True)[: 2 if job.recipe.hides else 1]:
        pull_queries[(grid,)](
            *job.rows(job.query, job.key, job.value, grad), as_stat(stat), means, as_rows(dquery), flags, features,
            *job.terms(), job.noise, job.size, **job.constants, ROWS=shape.rows, KEYS=shape.keys, HEAL=heal,
            **shape.options,
        )  # fmt: skip
    dweight = None
    if wants_weight:
        assert job.weight is not None
        dweight = features.weights.sum((0, 3))[:, : job.weight.shape[1]].sum_to_size(job.weight.shape)
    return _turn_back(dquery, features), dweight


def _pull_keys(job: Job, grad: Tensor, stat: Tensor | None, means: Tensor | None) -> tuple[Tensor, Tensor]:
    dkey, features = _make_room(job, job.key, job.score.keys, False)
    dvalue = torch.empty_like(job.value, memory_format=torch.contiguous_format)
    shape = job.shape("keys")
    grid = job.key.shape[0] * job.key.shape[1] * triton.cdiv(job.key.shape[2], shape.keys)
    flags = torch.empty(grid, dtype=torch.int32, device=grad.device) if job.recipe.hides else None
    for heal in (False, True)[: 2 if job.recipe.hides else 1]:
        pull_keys[(grid,)](
            *job.rows(job.query, job.key, job.value, grad), as_stat(stat), means, *job.rows(dkey, dvalue), flags,
            features, *job.terms(), job.noise, job.size, **job.constants, ROWS=shape.rows, KEYS=shape.keys, HEAL=heal,
            **shape.options,
        )  # fmt: skip
    return _turn_back(dkey, features), dvalue


def _make_room(job: Job, rows: Tensor, laid_out: Tensor | None, wants_weight: bool) -> tuple[Tensor, Features]:
    """Where gradients go: rows for a dot product, features otherwise, which are summed up in memory."""
    dense = torch.empty_like(rows, memory_format=torch.contiguous_format)
    if laid_out is None:
        return dense, Features()
    return dense, Features(torch.zeros_like(laid_out), torch.zeros_like(laid_out) if wants_weight else None)


def _turn_back(rows: Tensor, features: Features) -> Tensor:
    if features.rows is None:
        return rows
    return rows.copy_(features.rows[:, :, : rows.shape[-1]].transpose(-1, -2))


def _pull_bias(job: Job, grad: Tensor, stat: Tensor | None, means: Tensor | None) -> Tensor:
    assert job.bias is not None
    bias, (b, h, n, _), m = job.bias, job.query.shape, job.key.shape[2]
    shape, kind = job.shape("bias"), job.recipe.bias
    blocks = triton.cdiv(n, shape.rows)
    count = 16
    if kind == "dense":
        made = torch.empty(bias.shape, device=grad.device)
        part = Part(made, *bias.shape)
        wide = triton.cdiv(m, shape.keys) if bias.shape[3] > 1 else 1
        grid = bias.shape[0] * bias.shape[1] * (blocks if bias.shape[2] > 1 else 1) * wide
    else:
        # one row of sums for each block of queries, added up below
        count = triton.next_power_of_2(bias.shape[1]) if kind == "buckets" else 16
        made = torch.empty(h, blocks, *((count,) if kind == "buckets" else ()), device=grad.device)
        # two and not one, where there is one head or one query: all axes but sequences and keys are shared out
        part = Part(made, 1, max(h, 2), max(n, 2), 1, job.marks.get("buckets"), job.recipe.place)
        part = part._replace(h=h)
        grid = h * blocks
    constants = job.constants | {"E": max(16, job.constants["E"])}
    pull_bias[(grid,)](
        *job.rows(job.query, job.key, job.value, grad), as_stat(stat), means, part, *job.terms(), job.noise, job.size, b,
        **constants, KIND=kind, BUCKETS=count, ROWS=shape.rows, KEYS=shape.keys, **shape.options,
    )  # fmt: skip
    if kind == "dense":
        return made
    total = made.sum(1)
    return total if kind == "slopes" else total[:, : bias.shape[1]]
