"""Double backward for backends with first derivatives alone: `tiled` computes the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# a call once more from its tensors, by a backend that differentiates as often as one likes
Again = Callable[..., Tensor]


def differentiate_by(run: Again, out: Tensor, tensors: Sequence[Tensor], constants: Sequence[Tensor]) -> Tensor:
    """`out` with its own gradient, or with that of `run(*tensors)` where the gradient is to be differentiated.

    `constants` are what `run` reads besides: autograd raises where one was changed in place.
    """
    made: Tensor = _DoubleBackward.apply(out, run, constants, *tensors)  # type: ignore[no-untyped-call]
    return made


class _DoubleBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor, run: Again, constants: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(*tensors, *constants)
        # as a tensor of its own: what was handed in would come back as a view that nobody may write to
        return out.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            # to the backend, by the way that it made itself
            return grad, *(None,) * (len(ctx.needs_input_grad) - 1)
        wants = ctx.needs_input_grad[3:]
        return None, None, None, *differentiate(ctx.run, ctx.saved_tensors[: len(wants)], wants, grad)


def differentiate(
    run: Again, tensors: Sequence[Tensor | None], wants: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """The gradients of `run(*tensors)` of those that want one, as a graph to be differentiated."""
    # views: one tensor may have been given twice, or another be made of it, and each has a gradient of its own
    tensors = [None if x is None else x.view_as(x) for x in tensors]
    wanted = [x for x, wanted in zip(tensors, wants, strict=True) if wanted and x is not None]
    grads = iter(torch.autograd.grad(run(*tensors), wanted, grad, create_graph=True, allow_unused=True))
    return [next(grads) if wanted and x is not None else None for x, wanted in zip(tensors, wants, strict=True)]
