"""The kernels as operators of torch, so that `torch.compile` and autograd take them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.engine.backends.fused.job import Job
from regard.engine.backends.fused.launch import run_backward, run_forward
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.recipe import parse


def attend_fused(order: Order, seeds: tuple[int, int], keeps: bool) -> Tensor:
    """The output of a call with seeds for dropout and draws; `keeps` where a gradient may be asked for."""
    o = order
    marks = list(o.marks.values())
    out: Tensor
    recipe = str(o.recipe), o.recipe.reach, o.recipe.numbers
    out, _, _ = _attend(o.query, o.key, o.value, o.weight, o.sink, o.bias, marks, *recipe, seeds, keeps)
    return out


@torch.library.custom_op("regard::attend_fused", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None, bias: Tensor | None,
    marks: Sequence[Tensor], recipe: str, reach: Sequence[int], numbers: Sequence[float], seeds: Sequence[int],
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The output, the rows' statistic and the output in float32, where they are kept."""
    job = _make_job(query, key, value, weight, sink, bias, marks, recipe, reach, numbers, seeds)
    out, stat = run_forward(job, keeps)
    none = value.new_empty(0, dtype=torch.float32)
    exact = none if out.dtype == value.dtype else out
    return out.to(value.dtype), none.clone() if stat is None else stat, exact


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None, bias: Tensor | None,
    marks: Sequence[Tensor], recipe: str, reach: Sequence[int], numbers: Sequence[float], seeds: Sequence[int],
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    b, h, n, _ = query.shape
    kept = parse(recipe)
    shape = (2, b, h, n) if kept.solves or (keeps and kept.keeps_rows) else (0,)
    out = value.new_empty(b, h, n, value.shape[-1])
    exact = out.shape if keeps and kept.keeps_exact(value.dtype) else (0,)
    return out, value.new_empty(shape, dtype=torch.float32), value.new_empty(exact, dtype=torch.float32)


@torch.library.custom_op("regard::attend_fused_back", mutates_args=())
def _attend_back(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None,
    bias: Tensor | None, marks: Sequence[Tensor], out: Tensor, stat: Tensor, recipe: str, reach: Sequence[int],
    numbers: Sequence[float], seeds: Sequence[int], wants_weight: bool, wants_bias: bool,
) -> list[Tensor]:  # fmt: skip
    job = _make_job(query, key, value, weight, sink, bias, marks, recipe, reach, numbers, seeds)
    grads = run_backward(job, grad, out, stat if stat.numel() else None, wants_weight, wants_bias)
    made = [grads.query, grads.key, grads.value]
    for own, given in ((grads.weight, weight), (grads.sink, sink), (grads.bias, bias)):
        made.append(grad.new_empty(0) if own is None or given is None else own.to(given.dtype))
    return made


@_attend_back.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None,
    bias: Tensor | None, marks: Sequence[Tensor], out: Tensor, stat: Tensor, recipe: str, reach: Sequence[int],
    numbers: Sequence[float], seeds: Sequence[int], wants_weight: bool, wants_bias: bool,
) -> list[Tensor]:  # fmt: skip
    made = [x.new_empty(x.shape) for x in (query, key, value)]
    for given, wanted in ((weight, wants_weight), (sink, True), (bias, wants_bias)):
        made.append(grad.new_empty(0) if given is None or not wanted else given.new_empty(given.shape))
    return made


def _make_job(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None, bias: Tensor | None,
    marks: Sequence[Tensor], recipe: str, reach: Sequence[int], numbers: Sequence[float], seeds: Sequence[int],
) -> Job:  # fmt: skip
    kept = parse(recipe, tuple(reach), tuple(numbers))
    return Job(kept, query, key, value, weight, sink, bias, dict(zip(kept.marks, marks, strict=True)), *seeds)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, weight, sink, bias, marks, *recipe, seeds, _ = inputs
    ctx.recipe, ctx.seeds, ctx.num_marks = recipe, seeds, len(marks)
    out, stat, exact = output
    ctx.save_for_backward(query, key, value, weight, sink, bias, exact if exact.numel() else out, stat, *marks)


def _pull(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Any, ...]:
    query, key, value, weight, sink, bias, out, stat, *marks = ctx.saved_tensors
    wants = ctx.needs_input_grad
    dquery, dkey, dvalue, *rest = _attend_back(
        grad, query, key, value, weight, sink, bias, marks, out, stat, *ctx.recipe, ctx.seeds, wants[3], wants[5]
    )
    terms = [
        d if t is not None and wanted else None
        for d, t, wanted in zip(rest, (weight, sink, bias), wants[3:6], strict=True)
    ]
    return dquery, dkey, dvalue, *terms, [None] * ctx.num_marks, None, None, None, None, None


def _refuse_twice(ctx: Any, *grads: Any) -> None:
    raise RegardError("backend='fused' has no second derivative. Use backend='tiled'.")


_attend.register_autograd(_pull, setup_context=_save)
_attend_back.register_autograd(_refuse_twice, setup_context=lambda ctx, inputs, output: None)
