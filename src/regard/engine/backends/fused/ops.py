"""The kernels as operators of torch, so that `torch.compile` and autograd take them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from regard.core import RegardError
from regard.engine.backends.fused.job import Job
from regard.engine.backends.fused.launch import lay_out, run_backward, run_forward
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.recipe import parse


def attend_fused(order: Order, seeds: tuple[int, int], keeps: bool) -> Tensor:
    """The output of a call with seeds for dropout and draws; `keeps` where a gradient may be asked for."""
    o = order
    marks = list(o.marks.values())
    out: Tensor
    if _is_plain(o, marks):
        # the same without what an operator takes for its own bookkeeping, which is more than a small call does
        out, _, _ = _Attend.apply(o.query, o.key, o.value, o.weight, o.sink, o.bias, o, seeds, keeps)  # type: ignore[no-untyped-call]
        return out
    recipe = str(o.recipe), o.recipe.reach, o.recipe.numbers
    out, _, _ = _attend(o.query, o.key, o.value, o.weight, o.sink, o.bias, marks, *recipe, seeds, keeps)
    return out


def _is_plain(order: Order, marks: Sequence[Tensor]) -> bool:
    """Whether nobody looks on who needs an operator, and no tensor is more than one."""
    if _is_watched():
        return False
    given = (order.query, order.key, order.value, order.weight, order.sink, order.bias, *marks)
    return all(x is None or type(x) in (Tensor, nn.Parameter) for x in given)


def _is_watched() -> bool:
    """Whether a compiler, a transform of functions, or a mode that is told of every operator looks on."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return _get_current_dispatch_mode() is not None


@torch.library.custom_op("regard::attend_fused", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None, bias: Tensor | None,
    marks: Sequence[Tensor], recipe: str, reach: Sequence[int], numbers: Sequence[float], seeds: Sequence[int],
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The output, the rows' statistic and the output in float32, where they are kept."""
    return _forward(_make_job(query, key, value, weight, sink, bias, marks, recipe, reach, numbers, seeds), keeps)


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None, bias: Tensor | None,
    marks: Sequence[Tensor], recipe: str, reach: Sequence[int], numbers: Sequence[float], seeds: Sequence[int],
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    b, h, n, _ = query.shape
    kept = parse(recipe)
    shape = (2, b, h, n) if kept.solves or (keeps and kept.keeps_rows) else (0,)
    out = lay_out(query, value.shape[-1], value.dtype)
    keeps_out = keeps and kept.keeps_exact(value.dtype)
    kept_out = lay_out(query, value.shape[-1], torch.float32) if keeps_out else value.new_empty(0, dtype=torch.float32)
    return out, value.new_empty(shape, dtype=torch.float32), kept_out


@torch.library.custom_op("regard::attend_fused_back", mutates_args=())
def _attend_back(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None,
    bias: Tensor | None, marks: Sequence[Tensor], out: Tensor, stat: Tensor, recipe: str, reach: Sequence[int],
    numbers: Sequence[float], seeds: Sequence[int], wants_weight: bool, wants_bias: bool,
) -> list[Tensor]:  # fmt: skip
    job = _make_job(query, key, value, weight, sink, bias, marks, recipe, reach, numbers, seeds)
    return _backward(job, grad, out, stat, wants_weight, wants_bias)


@_attend_back.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None,
    bias: Tensor | None, marks: Sequence[Tensor], out: Tensor, stat: Tensor, recipe: str, reach: Sequence[int],
    numbers: Sequence[float], seeds: Sequence[int], wants_weight: bool, wants_bias: bool,
) -> list[Tensor]:  # fmt: skip
    made = [lay_out(x, x.shape[-1], x.dtype) for x in (query, key, value)]
    for given, wanted in ((weight, wants_weight), (sink, True), (bias, wants_bias)):
        made.append(grad.new_empty(0) if given is None or not wanted else given.new_empty(given.shape))
    return made


def _forward(job: Job, keeps: bool) -> tuple[Tensor, Tensor, Tensor]:
    out, stat = run_forward(job, keeps)
    none = job.value.new_empty(0, dtype=torch.float32)
    exact = none if out.dtype == job.value.dtype else out
    return out.to(job.value.dtype), none.clone() if stat is None else stat, exact


def _backward(job: Job, grad: Tensor, out: Tensor, stat: Tensor, wants_weight: bool, wants_bias: bool) -> list[Tensor]:
    grads = run_backward(job, grad, out, stat if stat.numel() else None, wants_weight, wants_bias)
    made = [grads.query, grads.key, grads.value]
    for own, given in ((grads.weight, job.weight), (grads.sink, job.sink), (grads.bias, job.bias)):
        made.append(grad.new_empty(0) if own is None or given is None else own.to(given.dtype))
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


class _Attend(torch.autograd.Function):
    """`_attend` and `_attend_back` for calls that nothing but autograd sees."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None,
        bias: Tensor | None, order: Order, seeds: tuple[int, int], keeps: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        job = Job(order.recipe, query, key, value, weight, sink, bias, order.marks, *seeds)
        out, stat, exact = _forward(job, keeps)
        ctx.recipe, ctx.seeds, ctx.num_marks = order.recipe, seeds, len(order.marks)
        kept = exact if exact.numel() else out
        ctx.save_for_backward(query, key, value, weight, sink, bias, kept, stat, *order.marks.values())
        ctx.mark_non_differentiable(stat, exact)
        ctx.set_materialize_grads(False)
        return out, stat, exact

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Tensor) -> tuple[Any, ...]:
        if grad is None:
            return (None,) * 9
        query, key, value, weight, sink, bias, out, stat, *marks = ctx.saved_tensors
        recipe, wants = ctx.recipe, ctx.needs_input_grad
        if torch.is_grad_enabled() or _is_watched():
            # where a graph of the gradients is wanted, the operator says that it has none
            given = str(recipe), recipe.reach, recipe.numbers, ctx.seeds, wants[3], wants[5]
            made = _attend_back(grad, query, key, value, weight, sink, bias, marks, out, stat, *given)
        else:
            names = dict(zip(recipe.marks, marks, strict=True))
            job = Job(recipe, query, key, value, weight, sink, bias, names, *ctx.seeds)
            made = _backward(job, grad, out, stat, wants[3], wants[5])
        dquery, dkey, dvalue, *rest = made
        terms = [
            d if t is not None and wanted else None
            for d, t, wanted in zip(rest, (weight, sink, bias), wants[3:6], strict=True)
        ]
        return dquery, dkey, dvalue, *terms, None, None, None


_attend.register_autograd(_pull, setup_context=_save)
_attend_back.register_autograd(_refuse_twice, setup_context=lambda ctx, inputs, output: None)
