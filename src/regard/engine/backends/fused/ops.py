"""A call by the kernels, with its gradient: by autograd alone, or by operators of torch where somebody looks on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# first of all: it begins what goes on beside the imports below
from regard.engine.backends.fused import wake  # noqa: F401

# isort: split
from regard.engine.backends.fused.asked import name_words, write
from regard.engine.backends.fused.borrowed import as_rows_are_kept, can_borrow
from regard.engine.backends.fused.kind import Kind, find_kind
from regard.engine.backends.fused.operators import ask, ask_back
from regard.engine.backends.fused.read import Order, keeps_mask, keeps_rows, read
from regard.engine.backends.fused.terms import LEARNED, complete
from regard.engine.backends.fused.work import Seeds, heal_borrowed, is_borrowed, may_lend, run_backward, run_forward
from regard.engine.call import Call
from regard.engine.double_backward import Again, differentiate
from regard.engine.native_gradient import Grads, guard_gradient, is_packed, keeps_alone


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
        borrows = is_borrowed(self.kind, self.keeps)
        if not self.keeps:
            return run_forward(self.kind, self.hold(tensors), self.seeds, False, borrows)[0]
        if borrows and keeps_alone(tensors):
            made = run_forward(self.kind, self.hold(tensors), self.seeds, True, True)[0]
            return guard_gradient(made, self.again, self.heal)
        # without what an operator takes for its own bookkeeping, which is more than a small call does
        out: Tensor = _apply(self, *tensors)  # type: ignore[no-untyped-call]
        return out

    def heal(self, node: Any, rows: Sequence[Tensor], grad: Tensor, made: Sequence[Tensor]) -> Grads | None:
        """Heal the gradients that cuDNN made; where it was forbidden since, ours instead."""
        out, logsumexp = node._saved_output, node._saved_logsumexp
        if may_lend():
            heal_borrowed(self.kind, rows, grad, out, logsumexp, made)
            return None
        stat = as_rows_are_kept(logsumexp)
        return run_backward(self.kind, self.hold(rows), self.seeds, False, grad, out, stat, [True] * 3)

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
        return ask(read(call, query, key, value), seeds, call.by_name)
    kind: Kind | None = call.kept.get("kind")
    order = read(call, query, key, value, None if kind is None else kind.recipe)
    if kind is None:
        if not _is_plain(order):
            return ask(order, seeds, call.by_name)
        kind = call.kept["kind"] = find_kind(order, not call.by_name)
    if again is not None:
        again = partial(_refill, again, call) if keeps_rows(call) else None
    if kind.missing and call.needs_grad and may_lend():
        return _attend_filled(kind.missing, order, seeds, again)
    work = Work(kind, order, seeds, call.needs_grad, again, call.constants)
    learned = [x for x in order[4:7] if x is not None]
    # what is asked for each time: whether to draw, and whether to fill
    is_open = call.dropout or kind.recipe.draws or (kind.missing and call.needs_grad)
    if call.kept.get("is_fixed") and keeps_rows(call) and keeps_mask(call) and not is_open:
        # for the next call that has the same terms
        call.kept["again"] = call.mask, partial(work.attend_beside, learned) if learned else work.attend
    return work.attend(*order[1:4], *learned)


def _attend_filled(missing: int, order: Order, seeds: Seeds, again: Again | None) -> Tensor:
    """A call with rows of zeros behind its own, which no query of them sees."""
    fill = partial(functional.pad, pad=(0, 0, 0, missing))
    n = order.query.shape[2]

    def run_again(*rows: Tensor) -> Tensor:
        assert again is not None, "asked for where there is one"
        return fill(again(*(x[:, :, :n] for x in rows)))

    rows = fill(order.query), fill(order.key), fill(order.value)
    filled = order._replace(query=rows[0], key=rows[1], value=rows[2])
    work = Work(find_kind(filled, True), filled, seeds, True, None if again is None else run_again, ())
    return work.attend(*rows)[:, :, :n]


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


def _is_plain(order: Order) -> bool:
    """Whether no tensor is more than the numbers that lie at its address."""
    given = (*order[1:7], *order.marks.values())
    return all(x is None or (type(x) in (Tensor, nn.Parameter) and not x.is_neg()) for x in given)


def _is_watched() -> bool:
    """Whether a compiler, a transform of functions, or a mode that is told of every operator looks on."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return torch._C._len_torch_dispatch_stack() > 0


class _Attend(torch.autograd.Function):
    """The kernels for calls that nothing but autograd sees."""

    @staticmethod
    def forward(ctx: Any, work: Work, *tensors: Tensor) -> Tensor:
        kind = work.kind
        borrows = is_borrowed(kind, True)
        out, stat, features = run_forward(kind, work.hold(tensors), work.seeds, True, borrows)
        if features is not None and is_packed():
            # made again: in fewer bits e^2x overflows, and what form it has is lost
            features = None
        ctx.work, ctx.borrows = work, borrows
        ctx.save_for_backward(*tensors, out, stat, features, *work.marks.values(), *work.constants)
        # of values
        dtype = kind.dtype
        return out if out.dtype == dtype else out.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        work, borrows, saved = ctx.work, ctx.borrows, ctx.saved_tensors
        kind, count = work.kind, len(work.names)
        tensors, (out, stat, features) = saved[:count], saved[count : count + 3]
        wants = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled() and work.again is not None:
            # a graph of the gradients is wanted
            return None, *_spread(work, differentiate(work.again, *_place(work, tensors, wants), grad))
        marks = saved[count + 3 : count + 3 + len(work.marks)]
        if grad.is_neg():
            grad = grad.resolve_neg()
        if torch.is_grad_enabled() or _is_watched():
            # the operator says that it has no graph of its gradients, and keeps to the kernels of the output
            recipe, words = kind.recipe, name_words(one=borrows, named=not borrows, sink="sink" in work.names)
            asked = write(str(recipe), recipe.reach, recipe.numbers, words, work.seeds)
            made = ask_back(asked, grad, (*tensors, *marks), out, stat, wants)
            return None, *made[:count]
        named = dict(zip(work.marks, marks, strict=True)) if marks else {}
        if borrows and not (may_lend() and can_borrow(kind.recipe, *tensors, learns=True) and out.data_ptr() % 16 == 0):
            # cuDNN was forbidden since, or cannot read what who keeps it elsewhere brought back
            borrows, stat = False, as_rows_are_kept(stat)
        held = work.hold(tensors, named)
        return None, *run_backward(kind, held, work.seeds, borrows, grad, out, stat, wants, features)


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
