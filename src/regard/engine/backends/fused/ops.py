"""The kernels as operators of torch, so that `torch.compile` and autograd take them as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.engine.backends.fused.borrowed import as_logsumexp, as_rows_are_kept
from regard.engine.backends.fused.job import Job
from regard.engine.backends.fused.kind import Kind, find_kind
from regard.engine.backends.fused.launch import lay_out, run_backward, run_forward
from regard.engine.backends.fused.read import Order, keeps_rows, read
from regard.engine.backends.fused.recipe import parse
from regard.engine.call import Call
from regard.engine.double_backward import Again, differentiate
from regard.score import Dot


def attend_fused(
    call: Call, query: Tensor, key: Tensor, value: Tensor, seeds: tuple[int, int], again: Again | None
) -> Tensor:
    """The output of a call with seeds for dropout and draws; `again` is the call where gradients are differentiated."""
    if _is_watched():
        return _attend_watched(call, read(call, query, key, value), seeds)
    kind: Kind | None = call.kept.get("kind")
    order = read(call, query, key, value, None if kind is None else kind.recipe)
    if kind is None:
        if not _is_plain(order):
            return _attend_watched(call, order, seeds)
        kind = call.kept["kind"] = find_kind(order, not call.by_name)
    if again is not None:
        again = partial(_refill, again, call) if keeps_rows(call) else None
    is_bare = isinstance(call.score, Dot) and keeps_rows(call)
    if is_bare and not (call.tensors or order.marks or call.dropout or kind.recipe.draws):
        # nothing but the rows can be another the next time
        call.kept["again"] = partial(_attend_rows, kind, call.needs_grad, again)
    return _attend_order(kind, order, seeds, call.needs_grad, again, call.constants)


def _attend_order(
    kind: Kind, order: Order, seeds: tuple[int, int], keeps: bool, again: Again | None, constants: tuple[Tensor, ...]
) -> Tensor:
    job = Job(kind, order, seeds)
    if not keeps:
        return _forward(job, False)[0]
    # without what an operator takes for its own bookkeeping, which is more than a small call does
    out: Tensor = _Attend.apply(job, again, constants, *order[1:7])  # type: ignore[no-untyped-call]
    return out


def _attend_rows(kind: Kind, keeps: bool, again: Again | None, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A call whose terms hold no tensor, as the last one of its kind."""
    return _attend_order(kind, Order(kind.recipe, query, key, value, None, None, None, {}), (0, 0), keeps, again, ())


def _refill(again: Again, call: Call, query: Tensor, key: Tensor, value: Tensor, *learned: Tensor | None) -> Tensor:
    """The call again, from its tensors as the kernels had them."""
    # the width of a Gaussian may be a number of the call's own
    held = [x for x in (learned if call.score.tensors else learned[1:]) if x is not None]
    # a weight or width comes as (1 or h, d), widened from one number maybe
    given = [
        x if x.shape == own.shape else x[:1, : own.numel()].reshape(own.shape)
        for x, own in zip(held, call.tensors, strict=True)
    ]
    return again(query, key, value, *given)


def _attend_watched(call: Call, order: Order, seeds: tuple[int, int]) -> Tensor:
    """The same as an operator of torch."""
    recipe, *tensors, marks = order
    text = str(recipe), recipe.reach, recipe.numbers
    out: Tensor = _attend(*tensors, list(marks.values()), *text, (*seeds, int(call.by_name)), call.needs_grad)[0]
    return out


def _is_plain(order: Order) -> bool:
    """Whether no tensor is more than the numbers that lie at its address."""
    given = (*order[1:7], *order.marks.values())
    return all(x is None or (type(x) in (Tensor, nn.Parameter) and not x.is_neg()) for x in given)


def _is_watched() -> bool:
    """Whether a compiler, a transform of functions, or a mode that is told of every operator looks on."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return torch._C._len_torch_dispatch_stack() > 0


@torch.library.custom_op("regard::attend_fused", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None, bias: Tensor | None,
    marks: Sequence[Tensor], recipe: str, reach: Sequence[int], numbers: Sequence[float], seeds: Sequence[int],
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The output, the rows' statistic and the output in float32, where they are kept."""
    job = _make_job(query, key, value, weight, sink, bias, marks, recipe, reach, numbers, seeds)
    out, stat, exact = _forward(job, keeps)
    if job.is_borrowed and keeps:
        assert stat is not None, "it was to be kept"
        stat = as_rows_are_kept(stat)
    out = _lay_out_anew(out, query) if job.is_borrowed else out
    none = value.new_empty(0, dtype=torch.float32)
    return out, none if stat is None else stat, none.clone() if exact is None else exact


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
    kept = None if not stat.numel() else as_logsumexp(stat) if job.is_borrowed else stat
    made = _backward(job, grad, out, kept, (wants_weight, wants_bias))
    if job.is_borrowed:
        given = query, key, value
        made[:3] = [_lay_out_anew(x, own) for x, own in zip(made, given, strict=False) if x is not None]
    return [grad.new_empty(0) if x is None else x for x in made]


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


def _lay_out_anew(x: Tensor, rows: Tensor) -> Tensor:
    """Rows as a compiler was told that they lie, which cuDNN's may not."""
    told = lay_out(rows, x.shape[-1], x.dtype)
    lies = zip(x.shape, x.stride(), told.stride(), strict=True)
    return x if all(one == other for size, one, other in lies if size > 1) else told.copy_(x)


def _forward(job: Job, keeps: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The output, the rows' statistic, and the output in float32 where backward needs it so."""
    out, stat = run_forward(job, keeps)
    return (out, stat, None) if out.dtype == job.value.dtype else (out.to(job.value.dtype), stat, out)


def _backward(
    job: Job, grad: Tensor, out: Tensor, stat: Tensor | None, wants: tuple[bool, bool]
) -> list[Tensor | None]:
    """The gradients of query, key, value, weight, sink and bias, weight's and bias's where they are wanted."""
    grads = run_backward(job, grad, out, stat, *wants)
    terms = ((grads.weight, job.weight), (grads.sink, job.sink), (grads.bias, job.bias))
    made = [None if own is None or given is None else own.to(given.dtype) for own, given in terms]
    return [grads.query, grads.key, grads.value, *made]


def _make_job(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None, bias: Tensor | None,
    marks: Sequence[Tensor], recipe: str, reach: Sequence[int], numbers: Sequence[float], seeds: Sequence[int],
) -> Job:  # fmt: skip
    kept = parse(recipe, tuple(reach), tuple(numbers))
    order = Order(kept, query, key, value, weight, sink, bias, dict(zip(kept.marks, marks, strict=True)))
    return Job(find_kind(order, not seeds[2]), order, (seeds[0], seeds[1]))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, weight, sink, bias, marks, *recipe, seeds, _ = inputs
    ctx.recipe, ctx.seeds, ctx.num_marks = recipe, seeds, len(marks)
    out, stat, exact = output
    ctx.save_for_backward(query, key, value, weight, sink, bias, exact if exact.numel() else out, stat, *marks)


def _pull(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Any, ...]:
    # read once: whoever keeps them elsewhere brings them back each time
    saved, wants = ctx.saved_tensors, ctx.needs_input_grad
    tensors, (out, stat, *marks) = saved[:6], saved[6:]
    made = _attend_back(grad, *tensors, marks, out, stat, *ctx.recipe, ctx.seeds, wants[3], wants[5])
    return *_take_wanted(made, tensors, wants[:6]), [None] * ctx.num_marks, None, None, None, None, None


def _refuse_twice(ctx: Any, *grads: Any) -> None:
    raise RegardError("backend='fused' has no second derivative. Use backend='tiled'.")


class _Attend(torch.autograd.Function):
    """`_attend` and `_attend_back` for calls that nothing but autograd sees."""

    @staticmethod
    def forward(
        ctx: Any, job: Job, again: Again | None, constants: tuple[Tensor, ...], *tensors: Tensor | None
    ) -> Tensor:
        out, stat, exact = _forward(job, True)
        ctx.job, ctx.again = (job.kind, job.recipe, (job.seed, job.draw_seed), job.is_borrowed), again
        ctx.strides = _list_strides(tensors, job.marks.values())
        ctx.save_for_backward(*tensors, out if exact is None else exact, stat, *job.marks.values(), *constants)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (kind, recipe, seeds, is_borrowed), wants = ctx.job, ctx.needs_input_grad[3:]
        saved = ctx.saved_tensors
        tensors, (out, stat, *marks) = saved[:6], saved[6:]
        if torch.is_grad_enabled() and ctx.again is not None:
            # a graph of the gradients is wanted
            return None, None, None, *differentiate(ctx.again, tensors, wants, grad)
        grad, marks = grad.resolve_neg(), marks[: len(recipe.marks)]
        if torch.is_grad_enabled() or _is_watched():
            # the operator says that it has no graph of its gradients, and keeps to the kernels of the output
            given = str(recipe), recipe.reach, recipe.numbers, (*seeds, int(not is_borrowed)), wants[3], wants[5]
            if stat is not None and is_borrowed:
                stat = as_rows_are_kept(stat)
            none = grad.new_empty(0, dtype=torch.float32)
            made = _attend_back(grad, *tensors, marks, out, none if stat is None else stat, *given)
        else:
            order = Order._make((recipe, *tensors, dict(zip(recipe.marks, marks, strict=True))))
            if _list_strides(tensors, marks) != ctx.strides:
                # who keeps them elsewhere brings them back as kernels were not compiled for them
                kind = find_kind(order, is_borrowed)
            made = _backward(Job(kind, order, seeds, is_borrowed), grad, out, stat, (wants[3], wants[5]))
        return None, None, None, *_take_wanted(made, tensors, wants)


def _list_strides(tensors: Iterable[Tensor | None], marks: Iterable[Tensor]) -> list[tuple[int, ...] | None]:
    return [None if x is None else x.stride() for x in (*tensors, *marks)]


def _take_wanted(
    made: Sequence[Tensor | None], tensors: Sequence[Tensor | None], wants: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients of those tensors that are there, and want one."""
    return [d if x is not None and wanted else None for d, x, wanted in zip(made, tensors, wants, strict=True)]


_attend.register_autograd(_pull, setup_context=_save)
_attend_back.register_autograd(_refuse_twice, setup_context=lambda ctx, inputs, output: None)
