"""Launches of the kernels: forward, and backward for whatever needs a gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.backends.fused.job import LOG2E, Job, Noise, as_rows, as_stat
from regard.engine.backends.fused.kernels.bias import Part, pull_bias
from regard.engine.backends.fused.kernels.forward import attend_forward
from regard.engine.backends.fused.kernels.keys import pull_keys
from regard.engine.backends.fused.kernels.pull import Features
from regard.engine.backends.fused.kernels.queries import pull_queries, take_means
from regard.engine.backends.fused.kernels.solve import solve_rows
from regard.engine.backends.fused.shapes import Shape, divide_up, round_up
from regard.engine.backends.fused.start import start


def run_forward(job: Job, keeps: bool) -> tuple[Tensor, Tensor | None]:
    """The output, in float32 where a backward pass needs it so, and the rows' statistic where it needs that."""
    b, h, n, _ = job.query.shape
    device = job.query.device
    dtype = job.value.dtype
    if keeps and job.recipe.keeps_exact(dtype):
        dtype = torch.float32
    out = lay_out(job.query, job.value.shape[-1], dtype)
    solves = job.recipe.solves
    stat = torch.empty(2, b, h, n, device=device) if solves or (keeps and job.recipe.keeps_rows) else None
    constants = job.constants

    def solve(shape: Shape) -> None:
        draws = Noise(job.draw_seed) if job.recipe.draws else Noise()
        needed = {name: constants[name] for name in ("d", "SCORE", "WEIGH", "D", "PRECISION", "FAST")}
        solve_rows[(job.count * divide_up(n, shape.rows),)](
            *job.rows(job.query, job.key), as_stat(stat), *job.terms(), draws, job.size, **needed, ROWS=shape.rows,
            KEYS=shape.keys, **shape.options,
        )  # fmt: skip

    recipe = job.recipe
    folds = recipe.is_dot and job.unit != 1 and recipe.cap is None and job.bias is None and recipe.scale > 0

    def attend(shape: Shape) -> None:
        grid = job.count * divide_up(n, shape.rows)
        flags = job.make_flags(grid)
        given = (
            *job.rows(job.query, job.key, job.value, out), as_stat(stat), flags, *job.terms(), job.noise, job.size,
        )  # fmt: skip
        options = {**constants, "FOLD": folds, "ROWS": shape.rows, "KEYS": shape.keys, **shape.options}
        start(attend_forward, grid, given, job.list_passes(), **options)

    if solves:
        solve(job.pick("solve", solve))
    attend(job.pick("forward", attend))
    return out, stat


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


def run_backward(
    job: Job, grad: Tensor, out: Tensor, stat: Tensor | None, wants_weight: bool, wants_bias: bool
) -> Grads:
    means = None
    b, h, n, _ = job.query.shape
    if job.recipe.weigh.startswith("entmax") or job.recipe.takes_means:
        means = torch.empty(b, h, n, device=grad.device)
    if job.recipe.takes_means and not job.takes_own_means:
        e, width = job.constants["e"], round_up(job.constants["e"])
        take_means[(job.count * divide_up(n, 32),)](*job.rows(out, grad), means, job.size, e, width, 32)
    dquery, dweight = _pull_queries(job, grad, stat, means, wants_weight)
    dkey, dvalue = _pull_keys(job, grad, stat, means)
    grads = Grads(dquery, dkey, dvalue, dweight)
    if job.sink is not None:
        assert stat is not None, "softmax keeps its rows"
        assert means is not None
        share = torch.exp2(job.sink.float().reshape(-1, 1) * LOG2E - stat[0]) * stat[1]
        grads.sink = -(share * means).sum((0, 2)).sum_to_size(job.sink.numel()).view(job.sink.shape)
    if wants_bias:
        grads.bias = _pull_bias(job, grad, stat, means)
    return grads


def _pull_queries(
    job: Job, grad: Tensor, stat: Tensor | None, means: Tensor | None, wants_weight: bool
) -> tuple[Tensor, Tensor | None]:
    dquery = lay_out(job.query, job.query.shape[-1], job.query.dtype)

    def pull(shape: Shape) -> Features:
        features = _make_room(job.score.queries, wants_weight)
        grid = job.count * divide_up(job.query.shape[2], shape.rows)
        flags = job.make_flags(grid)
        given = (
            *job.rows(job.query, job.key, job.value, grad), as_stat(stat), means, as_rows(dquery), flags, features,
            *job.terms(), job.noise, job.size,
        )  # fmt: skip
        options = {**job.constants, "OWN": job.takes_own_means, "ROWS": shape.rows, "KEYS": shape.keys, **shape.options}
        start(pull_queries, grid, given, job.list_passes(), **options)
        return features

    features = pull(job.pick("queries", pull))
    dweight = None
    if wants_weight:
        assert job.weight is not None
        dweight = features.weights.sum((0, 3))[:, : job.weight.shape[1]].sum_to_size(job.weight.shape)
    return _turn_back(dquery, features), dweight


def _pull_keys(job: Job, grad: Tensor, stat: Tensor | None, means: Tensor | None) -> tuple[Tensor, Tensor]:
    dkey, dvalue = (lay_out(x, x.shape[-1], x.dtype) for x in (job.key, job.value))

    def pull(shape: Shape) -> Features:
        features = _make_room(job.score.keys, False)
        grid = job.key.shape[0] * job.key.shape[1] * divide_up(job.key.shape[2], shape.keys)
        flags = job.make_flags(grid)
        given = (
            *job.rows(job.query, job.key, job.value, grad), as_stat(stat), means, *job.rows(dkey, dvalue), flags,
            features, *job.terms(), job.noise, job.size,
        )  # fmt: skip
        options = {**job.constants, "ROWS": shape.rows, "KEYS": shape.keys, **shape.options}
        start(pull_keys, grid, given, job.list_passes(), **options)
        return features

    return _turn_back(dkey, pull(job.pick("keys", pull))), dvalue


def _make_room(laid_out: Tensor | None, wants_weight: bool) -> Features:
    """Where gradients of features are summed up; those of a dot product need no such room."""
    if laid_out is None:
        return Features()
    return Features(torch.zeros_like(laid_out), torch.zeros_like(laid_out) if wants_weight else None)


def _turn_back(rows: Tensor, features: Features) -> Tensor:
    if features.rows is None:
        return rows
    return rows.copy_(features.rows[:, :, : rows.shape[-1]].transpose(-1, -2))


def _pull_bias(job: Job, grad: Tensor, stat: Tensor | None, means: Tensor | None) -> Tensor:
    assert job.bias is not None
    bias, (b, h, n, _), m, kind = job.bias, job.query.shape, job.key.shape[2], job.recipe.bias
    constants = job.constants | {"E": max(16, job.constants["E"])}
    # numbers to a block of queries: one for slopes
    count = round_up(bias.shape[1]) if kind == "buckets" else 1

    def pull(shape: Shape) -> Tensor:
        blocks = divide_up(n, shape.rows)
        if kind == "dense":
            made = torch.empty(bias.shape, device=grad.device)
            part = Part(made, *bias.shape)
            wide = divide_up(m, shape.keys) if bias.shape[3] > 1 else 1
            grid = bias.shape[0] * bias.shape[1] * (blocks if bias.shape[2] > 1 else 1) * wide
        else:
            # one row of sums for each head and block of queries, added up below
            made = torch.empty(h, blocks, count, device=grad.device)
            part = Part(made, 1, h, n, 1, job.marks.get("buckets"), job.recipe.place)
            grid = h * blocks
        pull_bias[(grid,)](
            *job.rows(job.query, job.key, job.value, grad), as_stat(stat), means, part, *job.terms(), job.noise,
            job.size, b, **constants, KIND=kind, BUCKETS=count, ROWS=shape.rows, KEYS=shape.keys, **shape.options,
        )  # fmt: skip
        return made

    made = pull(job.pick("bias", pull))
    if kind == "dense":
        return made
    total = made.sum(1)
    return total.flatten() if kind == "slopes" else total[:, : bias.shape[1]]
