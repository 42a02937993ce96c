"""The walk over tiles as an autograd function in O(n) memory, differentiable any number of times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.engine.tiles.strips import Strips, attend_strip, vjp
from regard.engine.tiles.walk import walk_backward, walk_forward
from regard.engine.tiles.work import Work
from regard.engine.vmap import Vmapped, check_batched


def attend_by_tiles(work: Work, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The output of a call whose tensors are 4-D, lifted and prepared."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in work.tensors):
        # what a user's function closes over is not seen before it is called
        work = replace(work, call=replace(work.call, needs_grad=True))
    out: Tensor = _Attend.apply(work, query, key, value, *work.tensors)[0]  # type: ignore[no-untyped-call]
    return out


def _detach(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t.detach() for t in tensors)


class _Attend(Vmapped):
    @staticmethod
    def forward(work: Work, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        # what wants a gradient and what does not are the same to the walk, and to a compiler
        needs_grad = work.call.needs_grad
        with work.pair.draws.record(may_replay=work.steps.replays or not needs_grad, is_noted=needs_grad):
            return walk_forward(work.with_tensors(_detach(tensors)), *_detach((query, key, value)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.work, *args = inputs
        ctx.count = len(args)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*args, *output, *ctx.work.constants)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, *(None for _ in range(ctx.count))
        check_batched(grad)
        # read once: whoever keeps them elsewhere brings them back each time
        saved = ctx.saved_tensors
        args, (out, stat, *_) = saved[: ctx.count], saved[ctx.count :]
        # the output is a function of the inputs, not an input of its own
        return None, *_Gradient.apply(ctx.work, out.detach(), stat, *args, grad)  # type: ignore[no-untyped-call]


class _Gradient(Vmapped):
    """The gradient itself as an autograd function, so that it can be differentiated once more."""

    @staticmethod
    def forward(
        work: Work, out: Tensor, stat: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        *tensors, grad = rest
        # a backward pass inside an autocast region would otherwise compute its products in half precision
        with torch.autocast(query.device.type, enabled=False), work.pair.draws.replay():
            grads = walk_backward(
                work.with_tensors(_detach(tuple(tensors))), *_detach((query, key, value, out, stat, grad))
            )
        return tuple(g.to(x.dtype) for g, x in zip(grads, (query, key, value, *tensors), strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.work, _, _, *args = inputs
        ctx.count = len(args)
        ctx.save_for_backward(*args, *ctx.work.constants)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        check_batched(*grads)
        ctx.work.pair.draws.refuse_strips()
        args = ctx.saved_tensors[: ctx.count]
        piece = vjp(vjp(attend_strip(len(args) - 4)))
        with torch.autocast(grads[0].device.type, enabled=False):
            return None, None, None, *Strips.apply(ctx.work, piece, *args, *grads)  # type: ignore[no-untyped-call]
