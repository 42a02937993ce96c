"""Launches of the kernels: forward, and backward for whatever needs a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.engine.backends.fused.borrowed import LOG2E, attend_borrowed, differentiate_borrowed
from regard.engine.backends.fused.job import Job, as_rows, as_stat
from regard.engine.backends.fused.kernels.bias import Part, pull_bias
from regard.engine.backends.fused.kernels.forward import attend_forward
from regard.engine.backends.fused.kernels.keys import pull_keys
from regard.engine.backends.fused.kernels.pull import Features
from regard.engine.backends.fused.kernels.queries import pull_queries, take_means
from regard.engine.backends.fused.kernels.solve import solve_rows
from regard.engine.backends.fused.shapes import Shape, divide_up, round_up
from regard.engine.backends.fused.start import POINT, At, Give, Starter, start_all


def run_forward(job: Job, keeps: bool) -> tuple[Tensor, Tensor | None]:
    """The output, in float32 where a backward pass needs it so, and the rows' statistic where it needs that."""
    kind, recipe = job.kind, job.recipe
    if job.is_borrowed:
        out, logsumexp = attend_borrowed(job.query, job.key, job.value, recipe.scale, keeps)
        kept = logsumexp if keeps else None
        start_all(*_ask_forward(job, out, kept))
        return out, kept
    dtype = job.value.dtype
    if keeps and recipe.keeps_exact(dtype):
        dtype = torch.float32
    out = lay_out(job.query, job.value.shape[-1], dtype)
    is_kept = recipe.solves or (keeps and recipe.keeps_rows)
    stat = job.query.new_empty((2, kind.b, kind.h, kind.n), dtype=torch.float32) if is_kept else None

    solution = [_ask_solution(job, stat)] if recipe.solves else []
    start_all(*solution, *_ask_forward(job, out, stat))
    return out, stat


def _ask_forward(job: Job, out: Tensor, stat: Tensor | None) -> list[tuple[Starter, Give]]:
    kind, recipe = job.kind, job.recipe
    flags = job.make_flags(kind.n)

    def give(at: At) -> tuple[Any, ...]:
        return (
            as_rows(job.query, at), as_rows(job.key, at), as_rows(job.value, at), as_rows(out, at),
            as_stat(stat, at, job.is_borrowed), None if flags is None else at(flags), *job.terms(at), job.noise,
            kind.size,
        )  # fmt: skip

    def make(heals: bool, shape: Shape) -> Starter:
        folds = recipe.is_dot and kind.unit != 1 and recipe.cap is None and job.bias is None and recipe.scale > 0
        constants = {**kind.constants, "FOLD": folds, "HEAL": heals, **shape.constants}
        return Starter(attend_forward, kind.count * divide_up(kind.n, shape.rows), constants)

    variant = stat is None, job.is_borrowed
    asked = [kind.ask("forward", (variant, heals), partial(make, heals), give, job.is_borrowed) for heals in job.passes]
    return [job.flag("forward", flags, asked[0][0], out), *asked] if job.is_borrowed else asked


def _ask_solution(job: Job, stat: Tensor | None) -> tuple[Starter, Give]:
    kind = job.kind

    def give(at: At) -> tuple[Any, ...]:
        return as_rows(job.query, at), as_rows(job.key, at), as_stat(stat, at), *job.terms(at), job.draws, kind.size

    def make(shape: Shape) -> Starter:
        needed = {name: kind.constants[name] for name in ("d", "SCORE", "WEIGH", "D", "PRECISION", "FAST")}
        return Starter(solve_rows, kind.count * divide_up(kind.n, shape.rows), {**needed, **shape.constants})

    return kind.ask("solve", None, make, give)


def lay_out(rows: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Room for as many rows of some width, heads within positions where these rows have them so.

    Layers split their rows into heads: what goes back in the same order is joined again without a copy.
    """
    b, h, n, _ = rows.shape
    if rows.stride(1) < rows.stride(2):
        return rows.new_empty((b, n, h, width), dtype=dtype).transpose(1, 2)
    return rows.new_empty((b, h, n, width), dtype=dtype)


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
    work = Backward(job, grad, out, stat)
    rows = work.grads
    queries, keys = _Room(job, "queries", wants_weight), _Room(job, "keys", False)
    takes_means = job.recipe.takes_means and not job.kind.takes_own_means and not job.is_borrowed
    means = [work.ask_means()] if takes_means else []
    start_all(*means, *work.ask_queries(queries), *work.ask_keys(keys))
    queries.turn_back(rows.query)
    keys.turn_back(rows.key)
    if wants_weight:
        rows.weight = queries.sum_weights()
    if job.sink is not None:
        rows.sink = work.pull_sink()
    if wants_bias:
        rows.bias = work.pull_bias()
    return rows


class Backward:
    """A backward pass at work: what its kernels share."""

    def __init__(self, job: Job, grad: Tensor, out: Tensor, stat: Tensor | None) -> None:
        self.job, self.grad, self.out, self.stat = job, grad, out, stat
        kind = job.kind
        # kernels are compiled for the strides of these, too
        self.sort = grad.dtype, grad.stride(), grad.data_ptr() % 16, out.stride()
        self.means: Tensor | None = None
        self.pointed: tuple[Any, ...] | None = None
        if job.is_borrowed:
            given = job.query, job.key, job.value, out, _there(stat)
            self.grads = Grads(*differentiate_borrowed(grad, *given, job.recipe.scale))
            return
        self.grads = Grads(*(lay_out(x, x.shape[-1], x.dtype) for x in (job.query, job.key, job.value)))
        if kind.takes_own_means or job.recipe.takes_means:
            self.means = job.query.new_empty((kind.b, kind.h, kind.n), dtype=torch.float32)

    def ask_means(self) -> tuple[Starter, Give]:
        kind, e = self.job.kind, self.job.kind.constants["e"]

        def give(at: At) -> tuple[Any, ...]:
            return as_rows(self.out, at), as_rows(self.grad, at), at(_there(self.means)), kind.size

        constants = {"e": e, "E": round_up(e), "ROWS": 32}
        make = partial(Starter, take_means, kind.count * divide_up(kind.n, 32), constants)
        return kind.find(("means", self.sort), make), give

    def _give(self, at: At) -> tuple[Any, ...]:
        if at is not POINT:
            return self._give_anew(at)
        if self.pointed is None:
            self.pointed = self._give_anew(at)
        return self.pointed

    def _give_anew(self, at: At) -> tuple[Any, ...]:
        job = self.job
        return (
            as_rows(job.query, at), as_rows(job.key, at), as_rows(job.value, at), as_rows(self.grad, at),
            as_rows(self.out, at) if job.is_borrowed else None, as_stat(self.stat, at, job.is_borrowed),
            None if self.means is None else at(self.means),
        )  # fmt: skip

    def ask_queries(self, room: _Room) -> list[tuple[Starter, Give]]:
        job, kind, dquery = self.job, self.job.kind, self.grads.query
        flags = job.make_flags(kind.n)

        def give(at: At) -> tuple[Any, ...]:
            made = as_rows(dquery, at), None if flags is None else at(flags)
            return *self._give(at), *made, room.point(at), *job.terms(at), job.noise, kind.size

        def make(heals: bool, shape: Shape) -> Starter:
            owns = kind.takes_own_means and not job.is_borrowed
            constants = {**kind.constants, "HEAL": heals, "OWN": owns, **shape.constants}
            return Starter(pull_queries, kind.count * divide_up(kind.n, shape.rows), constants)

        variant = self.sort, room.weights is None, job.is_borrowed
        asked = [
            kind.ask("queries", (variant, heals), partial(make, heals), give, job.is_borrowed) for heals in job.passes
        ]
        return [job.flag("queries", flags, asked[0][0], dquery), *asked] if job.is_borrowed else asked

    def ask_keys(self, room: _Room) -> list[tuple[Starter, Give]]:
        job, kind, made = self.job, self.job.kind, (self.grads.key, self.grads.value)
        flags = job.make_flags(kind.m)

        def give(at: At) -> tuple[Any, ...]:
            dkey, dvalue = (as_rows(x, at) for x in made)
            flagged = None if flags is None else at(flags)
            return *self._give(at), dkey, dvalue, flagged, room.point(at), *job.terms(at), job.noise, kind.size

        def make(heals: bool, shape: Shape) -> Starter:
            constants = {**kind.constants, "HEAL": heals, **shape.constants}
            return Starter(pull_keys, kind.b * kind.g * divide_up(kind.m, shape.keys), constants)

        variant = self.sort, job.is_borrowed
        asked = [
            kind.ask("keys", (variant, heals), partial(make, heals), give, job.is_borrowed) for heals in job.passes
        ]
        return [job.flag("keys", flags, asked[0][0], *made), *asked] if job.is_borrowed else asked

    def pull_bias(self) -> Tensor:
        job, kind, bias = self.job, self.job.kind, _there(self.job.bias)
        what = job.recipe.bias
        # numbers to a block of queries: one for slopes
        count = round_up(bias.shape[1]) if what == "buckets" else 1
        constants = {**kind.constants, "E": max(16, kind.constants["E"]), "KIND": what, "BUCKETS": count}
        # of slopes and buckets, one row of sums for each head and block of queries, added up below
        made = bias.new_empty(bias.shape, dtype=torch.float32) if what == "dense" else None

        def give(at: At) -> tuple[Any, ...]:
            b, h, i, j = bias.shape if what == "dense" else (1, kind.h, kind.n, 1)
            buckets = job.marks.get("buckets")
            place = None if what == "dense" else job.recipe.place
            part = Part(at(_there(made)), b, h, i, j, None if buckets is None else at(buckets), place)
            rows = self._give(at)
            return *rows[:4], *rows[5:], part, *job.terms(at), job.noise, kind.size, kind.b

        def make(shape: Shape) -> Starter:
            nonlocal made
            blocks = divide_up(kind.n, shape.rows)
            grid = kind.h * blocks
            if what == "dense":
                wide = divide_up(kind.m, shape.keys) if bias.shape[3] > 1 else 1
                grid = bias.shape[0] * bias.shape[1] * (blocks if bias.shape[2] > 1 else 1) * wide
            else:
                made = bias.new_empty((kind.h, blocks, count), dtype=torch.float32)
            return Starter(pull_bias, grid, {**constants, **shape.constants})

        starter, _ = kind.ask("bias", self.sort, make, give)
        if made is None:
            made = bias.new_empty((kind.h, starter.count // kind.h, count), dtype=torch.float32)
        start_all((starter, give))
        found = _there(made)
        if what == "dense":
            return found
        total = found.sum(1)
        return total.flatten() if what == "slopes" else total[:, : bias.shape[1]]

    def pull_sink(self) -> Tensor:
        """The gradient of the sink, from its share of each row."""
        sink, stat = _there(self.job.sink), _there(self.stat)
        share = torch.exp2(sink.float().reshape(-1, 1) * LOG2E - stat[0]) * stat[1]
        return -(share * _there(self.means)).sum((0, 2)).sum_to_size(sink.numel()).view(sink.shape)


class _Room:
    """Where gradients of features, and of weights, are summed up; those of a dot product need no such room."""

    def __init__(self, job: Job, name: str, wants_weight: bool) -> None:
        self.job = job
        self.rows = None if job.recipe.is_dot else torch.zeros_like(job.features[name])
        self.weights = None if self.rows is None or not wants_weight else torch.zeros_like(self.rows)

    def point(self, at: At) -> Features:
        return Features(*(None if x is None else at(x) for x in (self.rows, self.weights)))

    def turn_back(self, rows: Tensor) -> None:
        """Sums feature by feature as gradients of rows."""
        if self.rows is not None:
            rows.copy_(self.rows[:, :, : rows.shape[-1]].transpose(-1, -2))

    def sum_weights(self) -> Tensor:
        weight = _there(self.job.weight)
        return _there(self.weights).sum((0, 3))[:, : weight.shape[1]].sum_to_size(weight.shape)


def _there(x: Tensor | None) -> Tensor:
    assert x is not None, "the recipe says that it is there"
    return x
