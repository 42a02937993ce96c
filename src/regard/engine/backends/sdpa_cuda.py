"""torch's attention kernels on CUDA, by their operators: a choice of each call's takes longer than a small call."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.backends import cuda

from regard.core import RegardError
from regard.engine.call import Call
from regard.engine.double_backward import Again, differentiate
from regard.engine.native_gradient import align, guard_gradient, keeps_alone

# cuDNN's backward gives NaN at low logits where rows do not fill its blocks: pytorch#196678, cudnn-frontend#1072
CUDNN_BLOCK = 128


@cache
def has_flash(device: torch.device) -> bool:
    return cuda.is_flash_attention_available() and torch.cuda.get_device_capability(device) >= (8, 0)


def may_take_cudnn(call: Call) -> bool:
    """Whether cuDNN is right for the call; it is the first choice, before the flash kernel."""
    s = call.sizes
    return not call.needs_grad or (s.n % CUDNN_BLOCK == 0 and s.m % CUDNN_BLOCK == 0)


def attend_on_cuda(call: Call, query: Tensor, key: Tensor, value: Tensor, scale: float, again: Again | None) -> Tensor:
    """Softmax attention without a mask by cuDNN or the flash kernel: never by one that is slow or holds n×m in silence.

    `again` is the call of the same rows, for who differentiates their gradients.
    """
    # what torch answers hangs on these, which a caller may change between two calls
    switches = cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled(), torch.are_deterministic_algorithms_enabled()
    kept: tuple[bool, bool] | None = call.kept.get(switches)
    rows = query, key, value
    if kept is None or not kept[0]:
        rows = align(query), align(key), align(value)
    if kept is None:
        lies_well = rows[0] is query and rows[1] is key and rows[2] is value
        kept = call.kept[switches] = lies_well, _ask(call, *rows)
    takes = kept[1]
    if not call.needs_grad:
        return _run(*rows, scale, takes, False)[0]
    if keeps_alone(rows):
        return guard_gradient(_run(*rows, scale, takes, True)[0], again, None)
    out: Tensor = _Attend.apply(again, scale, takes, *rows)  # type: ignore[no-untyped-call]
    return out


def _ask(call: Call, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether cuDNN is to take the call, by torch's own word; raises where the flash kernel does not either."""
    asked = cuda.SDPAParams(query, key, value, None, 0.0, False, call.sizes.g != call.sizes.h)
    if may_take_cudnn(call) and cuda.can_use_cudnn_attention(asked):
        return True
    if not cuda.can_use_flash_attention(asked):
        raise RegardError("neither torch's flash kernel nor cuDNN takes this call. Use backend='fused'.")
    return False


def _run(
    query: Tensor, key: Tensor, value: Tensor, scale: float, takes_cudnn: bool, keeps: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output, each row's logsumexp, and what the backward pass reads for dropout."""
    rows = query, key, value
    if takes_cudnn:
        out, stat, _, _, _, _, seed, offset, _ = torch._scaled_dot_product_cudnn_attention(
            *rows, None, keeps, 0.0, False, False, scale=scale
        )
    else:
        out, stat, _, _, _, _, seed, offset, _ = torch._scaled_dot_product_flash_attention(
            *rows, 0.0, False, False, scale=scale
        )
    return out, stat, seed, offset


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, again: Again | None, scale: float, takes_cudnn: bool, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        out, *noted = _run(query, key, value, scale, takes_cudnn, True)
        ctx.again, ctx.scale, ctx.takes_cudnn = again, scale, takes_cudnn
        ctx.save_for_backward(query, key, value, out, *noted)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        # who keeps them elsewhere may bring them back as kernels cannot read them
        query, key, value, out, logsumexp, seed, offset = (
            x if x.data_ptr() % 16 == 0 else x.clone() for x in ctx.saved_tensors
        )
        if torch.is_grad_enabled() and ctx.again is not None:
            # a graph of the gradients is wanted
            wants = ctx.needs_input_grad[3:]
            return None, None, None, *differentiate(ctx.again, (query, key, value), wants, grad)
        rows = align(grad), query, key, value, out, logsumexp
        return None, None, None, *pull(*rows, seed, offset, ctx.scale, ctx.takes_cudnn)


def pull(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, seed: Tensor,
    offset: Tensor, scale: float, takes_cudnn: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of query, key and value."""
    n, m = query.shape[2], key.shape[2]
    rows = grad, query, key, value, out, logsumexp
    made: tuple[Tensor, Tensor, Tensor]
    if takes_cudnn:
        made = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default(
            *rows, seed, offset, None, None, None, n, m, 0.0, False, scale=scale
        )
    else:
        made = torch.ops.aten._scaled_dot_product_flash_attention_backward.default(
            *rows, None, None, n, m, 0.0, False, seed, offset, scale=scale
        )
    return made
