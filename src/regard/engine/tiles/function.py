"""The walk as one differentiable operation, twice differentiable, whose memory does not grow with n×m."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.engine.tiles.twice import walk_twice
from regard.engine.tiles.walk import walk_backward, walk_forward
from regard.engine.tiles.work import Work


def attend_by_tiles(work: Work, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The output of a call whose tensors are 4-D, lifted and prepared."""
    out: Tensor = _Attend.apply(work, query, key, value, *work.tensors)  # type: ignore[no-untyped-call]
    return out


def _detach(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t.detach() for t in tensors)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> Tensor:
        # what wants a gradient and what does not are the same to the walk, and to a compiler
        out, stat = walk_forward(work.holding(_detach(tensors)), *_detach((query, key, value)))
        ctx.work = work
        ctx.save_for_backward(query, key, value, out, stat, *tensors)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, stat, *tensors = ctx.saved_tensors
        # the output is a function of the inputs, not an input of its own
        rows = (out.detach(), stat, grad, query, key, value)
        return None, *_Slope.apply(ctx.work, *rows, *tensors)  # type: ignore[no-untyped-call]


class _Slope(torch.autograd.Function):
    """The gradient itself as an operation, so that it can be differentiated once more."""

    @staticmethod
    def forward(
        ctx: Any, work: Work, out: Tensor, stat: Tensor, grad: Tensor, query: Tensor, key: Tensor, value: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        ctx.work = work
        ctx.save_for_backward(grad, query, key, value, *tensors)
        rows = _detach((query, key, value, out, stat, grad))
        # a backward pass inside an autocast region would otherwise compute its products in half precision
        with torch.autocast(query.device.type, enabled=False):
            grads = walk_backward(work.holding(_detach(tensors)), *rows)
        return tuple(g.to(x.dtype) for g, x in zip(grads, (query, key, value, *tensors), strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grads[0].device.type, enabled=False):
            return None, None, None, *walk_twice(ctx.work, ctx.saved_tensors, grads)
