"""The kernels as operators of torch, so that `torch.compile` and autograd take them as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.engine.backends.fused.borrowed import as_logsumexp, as_rows_are_kept
from regard.engine.backends.fused.kind import Kind, find_kind
from regard.engine.backends.fused.read import Order, keeps_mask, keeps_rows, read
from regard.engine.backends.fused.recipe import parse
from regard.engine.backends.fused.terms import LEARNED, complete, hold, lay_out
from regard.engine.backends.fused.work import Seeds, is_borrowed, run_backward, run_forward
from regard.engine.call import Call
from regard.engine.double_backward import Again, differentiate


class Work:
    """What a call brings to its kernels besides tensors that learn."""

    __slots__ = ("again", "constants", "keeps", "kind", "marks", "names", "seeds")

    def __init__(
        self, kind: Kind, order: Order, seeds: Seeds, keeps: bool, again: Again | None, constants: tuple[Tensor, ...]
    ) -> None:
        self.kind, self.marks, self.seeds, self.keeps = kind, order.marks, seeds, keeps
        self.again, self.constants = again, constants
        # of query, key, value, weight, sink and bias those that are there
        self.names = [name for name, x in zip(LEARNED, order[1:7], strict=True) if x is not None]

    def attend(self, *tensors: Tensor) -> Tensor:
        """The output, of tensors in the order of `names`."""
        if not self.keeps:
            return run_forward(self.kind, self.hold(tensors), self.seeds, False, is_borrowed(self.kind))[0]
        # without what an operator takes for its own bookkeeping, which is more than a small call does
        out: Tensor = _apply(self, *tensors)  # type: ignore[no-untyped-call]
        return out

    def attend_beside(self, learned: Sequence[Tensor], *rows: Tensor) -> Tensor:
        """The output, where only the rows are others."""
        return self.attend(*rows, *learned)

    def hold(self, tensors: Sequence[Tensor], marks: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The tensors of the call by their names."""
        held = dict(zip(self.names, tensors, strict=True))
        marks = self.marks if marks is None else marks
        return complete(self.kind.recipe, held, marks) if marks or len(held) > 3 else held


def attend_fused(call: Call, query: Tensor, key: Tensor, value: Tensor, seeds: Seeds, again: Again | None) -> Tensor:
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
    work = Work(kind, order, seeds, call.needs_grad, again, call.constants)
    learned = [x for x in order[4:7] if x is not None]
    is_drawn = call.dropout or kind.recipe.draws
    if call.kept.get("is_fixed") and keeps_rows(call) and keeps_mask(call) and not is_drawn:
        # for the next call that has the same terms
        call.kept["again"] = call.mask, partial(work.attend_beside, learned) if learned else work.attend
    return work.attend(*order[1:4], *learned)


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


def _attend_watched(call: Call, order: Order, seeds: Seeds) -> Tensor:
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
    kind, order = _read_again(query, key, value, weight, sink, bias, marks, recipe, reach, numbers, seeds)
    borrows = is_borrowed(kind)
    out, stat = run_forward(kind, hold(order), (seeds[0], seeds[1]), keeps, borrows)
    out, exact = (out, None) if out.dtype == value.dtype else (out.to(value.dtype), out)
    if borrows:
        out, stat = _lay_out_anew(out, query), None if stat is None else as_rows_are_kept(stat)
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
    kind, order = _read_again(query, key, value, weight, sink, bias, marks, recipe, reach, numbers, seeds)
    borrows = is_borrowed(kind)
    kept = None if not stat.numel() else as_logsumexp(stat) if borrows else stat
    tensors = order[1:7]
    wants = [True, True, True, wants_weight, True, wants_bias]
    wants = [wanted for wanted, x in zip(wants, tensors, strict=True) if x is not None]
    found = iter(run_backward(kind, hold(order), (seeds[0], seeds[1]), borrows, grad, out, kept, wants))
    made = [None if x is None else next(found) for x in tensors]
    if borrows:
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


def _read_again(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, sink: Tensor | None, bias: Tensor | None,
    marks: Sequence[Tensor], recipe: str, reach: Sequence[int], numbers: Sequence[float], seeds: Sequence[int],
) -> tuple[Kind, Order]:  # fmt: skip
    kept = parse(recipe, tuple(reach), tuple(numbers))
    order = Order(kept, query, key, value, weight, sink, bias, dict(zip(kept.marks, marks, strict=True)))
    return find_kind(order, not seeds[2]), order


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
    def forward(ctx: Any, work: Work, *tensors: Tensor) -> Tensor:
        kind = work.kind
        borrows = is_borrowed(kind)
        out, stat = run_forward(kind, work.hold(tensors), work.seeds, True, borrows)
        marks = work.marks.values()
        ctx.work, ctx.borrows, ctx.strides = work, borrows, _list_strides(tensors, marks)
        ctx.save_for_backward(*tensors, out, stat, *marks, *work.constants)
        # of values
        dtype = kind.dtype
        return out if out.dtype == dtype else out.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        work, borrows, saved = ctx.work, ctx.borrows, ctx.saved_tensors
        kind, count = work.kind, len(work.names)
        tensors, out, stat = saved[:count], saved[count], saved[count + 1]
        wants = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled() and work.again is not None:
            # a graph of the gradients is wanted
            return None, *_spread(work, differentiate(work.again, *_place(work, tensors, wants), grad))
        marks = saved[count + 2 : count + 2 + len(work.marks)]
        if grad.is_neg():
            grad = grad.resolve_neg()
        if torch.is_grad_enabled() or _is_watched():
            # the operator says that it has no graph of its gradients, and keeps to the kernels of the output
            placed, wanted = _place(work, tensors, wants)
            recipe = kind.recipe
            given = str(recipe), recipe.reach, recipe.numbers, (*work.seeds, int(not borrows)), wanted[3], wanted[5]
            if stat is not None and borrows:
                stat = as_rows_are_kept(stat)
            none = grad.new_empty(0, dtype=torch.float32)
            made = _attend_back(grad, *placed, marks, out, none if stat is None else stat, *given)
            return None, *_spread(work, made)
        named = dict(zip(work.marks, marks, strict=True)) if marks else {}
        held = work.hold(tensors, named)
        if _list_strides(tensors, marks) != ctx.strides:
            # who keeps them elsewhere brings them back as kernels were not compiled for them
            kind = find_kind(Order._make((kind.recipe, *_place(work, tensors, wants)[0], named)), borrows)
        return None, *run_backward(kind, held, work.seeds, borrows, grad, out, stat, wants)


# without a look for wrappers of transforms, under which no call comes here
_apply = super(torch.autograd.Function, _Attend).apply


def _place(work: Work, tensors: Sequence[Tensor], wants: Sequence[bool]) -> tuple[list[Tensor | None], list[bool]]:
    """Tensors, and whether they want a gradient, in the places of query, key, value, weight, sink and bias."""
    named = dict(zip(work.names, zip(tensors, wants, strict=True), strict=True))
    placed = [named.get(name, (None, False)) for name in LEARNED]
    return [x for x, _ in placed], [wanted for _, wanted in placed]


def _spread(work: Work, made: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Of gradients in those places those of tensors that are there."""
    return [x for name, x in zip(LEARNED, made, strict=True) if name in work.names]


def _list_strides(tensors: Sequence[Tensor], marks: Iterable[Tensor]) -> list[tuple[int, ...]]:
    return [x.stride() for x in tensors] + [x.stride() for x in marks]


def _take_wanted(
    made: Sequence[Tensor | None], tensors: Sequence[Tensor | None], wants: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients of those tensors that are there, and want one."""
    return [d if x is not None and wanted else None for d, x, wanted in zip(made, tensors, wants, strict=True)]


_attend.register_autograd(_pull, setup_context=_save)
_attend_back.register_autograd(_refuse_twice, setup_context=lambda ctx, inputs, output: None)
