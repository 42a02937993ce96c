"""Double backward for backends with first derivatives alone: `tiled` computes the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def differentiate_by(
    run: Callable[..., Tensor], out: Tensor, tensors: Sequence[Tensor], constants: Sequence[Tensor]
) -> Tensor:
    """`out` with its own gradient, or with that of `run(*tensors)` where the gradient is to be differentiated.

    `constants` are what `run` reads besides: autograd raises where one was changed in place.
    """
    made: Tensor = _DoubleBackward.apply(out, run, constants, *tensors)  # type: ignore[no-untyped-call]
    return made


class _DoubleBackward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, out: Tensor, run: Callable[..., Tensor], constants: Sequence[Tensor], *tensors: Tensor
    ) -> Tensor:
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
        # views: one tensor may have been given twice, or another be made of it, and each has a gradient of its own
        tensors = [x.view_as(x) for x in ctx.saved_tensors[: len(wants)]]
        wanted = [x for x, wanted in zip(tensors, wants, strict=True) if wanted]
        grads = iter(torch.autograd.grad(ctx.run(*tensors), wanted, grad, create_graph=True, allow_unused=True))
        return None, None, None, *(next(grads) if wanted else None for wanted in wants)
