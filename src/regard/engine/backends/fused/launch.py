"""Launches of the kernels: forward, and backward for whatever needs a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.engine.backends.fused.job import Job, Noise, as_rows, as_stat
from regard.engine.backends.fused.kernels.bias import Part, pull_bias
from regard.engine.backends.fused.kernels.forward import attend_forward
from regard.engine.backends.fused.kernels.keys import pull_keys
from regard.engine.backends.fused.kernels.pull import Features
from regard.engine.backends.fused.kernels.queries import pull_queries, take_means
from regard.engine.backends.fused.kernels.solve import solve_rows
from regard.engine.backends.fused.kind import LOG2E
from regard.engine.backends.fused.shapes import Shape, divide_up, round_up
from regard.engine.backends.fused.start import At


def run_forward(job: Job, keeps: bool) -> tuple[Tensor, Tensor | None]:
    """The output, in float32 where a backward pass needs it so, and the rows' statistic where it needs that."""
    kind, recipe = job.kind, job.recipe
    dtype = job.value.dtype
    if keeps and recipe.keeps_exact(dtype):
        dtype = torch.float32
    out = lay_out(job.query, job.value.shape[-1], dtype)
    rows = 2, kind.b, kind.h, kind.n
    is_kept = recipe.solves or (keeps and recipe.keeps_rows)
    stat = job.query.new_empty(rows, dtype=torch.float32) if is_kept else None
    if recipe.solves:
        _solve(job, stat)

    def attend(shape: Shape) -> None:
        grid = kind.count * divide_up(kind.n, shape.rows)
        flags = job.make_flags(grid)

        def given(at: At) -> tuple[Any, ...]:
            return (
                as_rows(job.query, at), as_rows(job.key, at), as_rows(job.value, at), as_rows(out, at),
                as_stat(stat, at), None if flags is None else at(flags), *job.terms(at), job.noise, kind.size,
            )  # fmt: skip

        folds = recipe.is_dot and kind.unit != 1 and recipe.cap is None and job.bias is None and recipe.scale > 0
        kind.start(
            attend_forward, grid, given, (shape, keeps), kind.passes, **kind.constants, FOLD=folds, ROWS=shape.rows,
            KEYS=shape.keys, **shape.options,
        )  # fmt: skip

    attend(kind.pick("forward", attend))
    return out, stat


def _solve(job: Job, stat: Tensor | None) -> None:
    kind, draws = job.kind, Noise(job.draw_seed) if job.recipe.draws else Noise()
    needed = {name: kind.constants[name] for name in ("d", "SCORE", "WEIGH", "D", "PRECISION", "FAST")}

    def solve(shape: Shape) -> None:
        def given(at: At) -> tuple[Any, ...]:
            return (
                as_rows(job.query, at), as_rows(job.key, at), as_stat(stat, at), *job.terms(at), draws, kind.size,
            )  # fmt: skip

        kind.start(
            solve_rows, kind.count * divide_up(kind.n, shape.rows), given, shape, **needed, ROWS=shape.rows,
            KEYS=shape.keys, **shape.options,
        )  # fmt: skip

    solve(kind.pick("solve", solve))


def lay_out(rows: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Room for as many rows of some width, heads within positions where these rows have them so.

    Layers split their rows into heads: what goes back in the same order is joined again without a copy.
    """
    b, h, n, _ = rows.shape
    if rows.stride(1) < rows.stride(2):
        return rows.new_empty(b, n, h, width, dtype=dtype).transpose(1, 2)
    return rows.new_empty(b, h, n, width, dtype=dtype)


@dataclass
class Grads:
    """Gradients of query, key, value, and of what the terms hold where it was asked for."""

    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor | None = None
    sink: Tensor | None = None
    bias: Tensor | None = None


class Backward:
    """A backward pass at work: what its kernels share."""

    def __init__(self, job: Job, grad: Tensor, out: Tensor, stat: Tensor | None) -> None:
        self.job, self.grad, self.out, self.stat = job, grad, out, stat
        kind, recipe = job.kind, job.recipe
        # kernels are compiled for the strides of this gradient, too
        self.sort = grad.dtype, grad.stride(), grad.data_ptr() % 16
        self.means = None
        if kind.takes_own_means or recipe.takes_means:
            self.means = job.query.new_empty((kind.b, kind.h, kind.n), dtype=torch.float32)
        if recipe.takes_means and not kind.takes_own_means:
            self._take_means()

    def _take_means(self) -> None:
        kind, e = self.job.kind, self.job.kind.constants["e"]

        def given(at: At) -> tuple[Any, ...]:
            return as_rows(self.out, at), as_rows(self.grad, at), at(_there(self.means)), kind.size

        grid = kind.count * divide_up(kind.n, 32)
        kind.start(take_means, grid, given, self.sort, e=e, E=round_up(e), ROWS=32)

    def _give(self, at: At) -> tuple[Any, ...]:
        job = self.job
        return (
            as_rows(job.query, at), as_rows(job.key, at), as_rows(job.value, at), as_rows(self.grad, at),
            as_stat(self.stat, at), None if self.means is None else at(self.means),
        )  # fmt: skip

    def pull_queries(self, wants_weight: bool) -> tuple[Tensor, Tensor | None]:
        job, kind = self.job, self.job.kind
        dquery = lay_out(job.query, job.query.shape[-1], job.query.dtype)

        def pull(shape: Shape) -> list[Tensor | None]:
            features = _make_room(job, "queries", wants_weight)
            grid = kind.count * divide_up(kind.n, shape.rows)
            flags = job.make_flags(grid)

            def given(at: At) -> tuple[Any, ...]:
                return (
                    *self._give(at), as_rows(dquery, at), None if flags is None else at(flags), _point(features, at),
                    *job.terms(at), job.noise, kind.size,
                )  # fmt: skip

            kind.start(
                pull_queries, grid, given, (shape, self.sort, wants_weight), kind.passes, **kind.constants,
                OWN=kind.takes_own_means, ROWS=shape.rows, KEYS=shape.keys, **shape.options,
            )  # fmt: skip
            return features

        features = pull(kind.pick("queries", pull))
        dweight = None
        if wants_weight:
            assert job.weight is not None
            sums = _there(features[1])
            dweight = sums.sum((0, 3))[:, : job.weight.shape[1]].sum_to_size(job.weight.shape)
        return _turn_back(dquery, features), dweight

    def pull_keys(self) -> tuple[Tensor, Tensor]:
        job, kind = self.job, self.job.kind
        dkey, dvalue = (lay_out(x, x.shape[-1], x.dtype) for x in (job.key, job.value))

        def pull(shape: Shape) -> list[Tensor | None]:
            features = _make_room(job, "keys", False)
            grid = kind.b * kind.g * divide_up(kind.m, shape.keys)
            flags = job.make_flags(grid)

            def given(at: At) -> tuple[Any, ...]:
                return (
                    *self._give(at), as_rows(dkey, at), as_rows(dvalue, at), None if flags is None else at(flags),
                    _point(features, at), *job.terms(at), job.noise, kind.size,
                )  # fmt: skip

            kind.start(
                pull_keys, grid, given, (shape, self.sort), kind.passes, **kind.constants, ROWS=shape.rows,
                KEYS=shape.keys, **shape.options,
            )  # fmt: skip
            return features

        return _turn_back(dkey, pull(kind.pick("keys", pull))), dvalue

    def pull_bias(self) -> Tensor:
        job, kind, bias = self.job, self.job.kind, _there(self.job.bias)
        constants, what = kind.constants | {"E": max(16, kind.constants["E"])}, job.recipe.bias
        # numbers to a block of queries: one for slopes
        count = round_up(bias.shape[1]) if what == "buckets" else 1

        def pull(shape: Shape) -> Tensor:
            blocks = divide_up(kind.n, shape.rows)
            if what == "dense":
                made = torch.empty(bias.shape, device=self.grad.device)
                sizes = tuple(bias.shape)
                wide = divide_up(kind.m, shape.keys) if bias.shape[3] > 1 else 1
                grid = bias.shape[0] * bias.shape[1] * (blocks if bias.shape[2] > 1 else 1) * wide
            else:
                # one row of sums for each head and block of queries, added up below
                made = torch.empty(kind.h, blocks, count, device=self.grad.device)
                sizes = 1, kind.h, kind.n, 1
                grid = kind.h * blocks

            def given(at: At) -> tuple[Any, ...]:
                part = Part(at(made), *sizes)
                if what != "dense":
                    buckets = job.marks.get("buckets")
                    part = Part(at(made), *sizes, None if buckets is None else at(buckets), job.recipe.place)
                return *self._give(at), part, *job.terms(at), job.noise, kind.size, kind.b

            kind.start(
                pull_bias, grid, given, (shape, self.sort), **constants, KIND=what, BUCKETS=count, ROWS=shape.rows,
                KEYS=shape.keys, **shape.options,
            )  # fmt: skip
            return made

        made = pull(kind.pick("bias", pull))
        if what == "dense":
            return made
        total = made.sum(1)
        return total.flatten() if what == "slopes" else total[:, : bias.shape[1]]

    def pull_sink(self) -> Tensor:
        """The gradient of the sink, from its share of each row."""
        sink, stat = _there(self.job.sink), _there(self.stat)
        share = torch.exp2(sink.float().reshape(-1, 1) * LOG2E - stat[0]) * stat[1]
        return -(share * _there(self.means)).sum((0, 2)).sum_to_size(sink.numel()).view(sink.shape)


def run_backward(
    job: Job, grad: Tensor, out: Tensor, stat: Tensor | None, wants_weight: bool, wants_bias: bool
) -> Grads:
    work = Backward(job, grad, out, stat)
    dquery, dweight = work.pull_queries(wants_weight)
    dkey, dvalue = work.pull_keys()
    dsink = None if job.sink is None else work.pull_sink()
    return Grads(dquery, dkey, dvalue, dweight, dsink, work.pull_bias() if wants_bias else None)


def _make_room(job: Job, name: str, wants_weight: bool) -> list[Tensor | None]:
    """Where gradients of features, and of weights, are summed up; those of a dot product need no such room."""
    if job.recipe.is_dot:
        return [None, None]
    laid_out = job.features[name]
    return [torch.zeros_like(laid_out), torch.zeros_like(laid_out) if wants_weight else None]


def _point(features: list[Tensor | None], at: At) -> Features:
    return Features(*(None if x is None else at(x) for x in features))


def _turn_back(rows: Tensor, features: list[Tensor | None]) -> Tensor:
    found = features[0]
    return rows if found is None else rows.copy_(found[:, :, : rows.shape[-1]].transpose(-1, -2))


def _there(x: Tensor | None) -> Tensor:
    assert x is not None, "the recipe says that it is there"
    return x
