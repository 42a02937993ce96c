"""The rule for `torch.vmap`: operations that read values, which no batch shows, run one sample at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError


class Vmapped(torch.autograd.Function):
    """An autograd function, written as `forward` and `setup_context`, with a rule for `torch.vmap`."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        pairs = list(zip(args, in_dims, strict=True))
        count = info.batch_size
        if not count:
            # of no samples, one of zeros tells the shapes
            pairs = [(_make_one(x, dim) if isinstance(dim, int) else x, dim) for x, dim in pairs]
        samples = []
        for at in range(count or 1):
            cut = [x.select(dim, at) if isinstance(dim, int) else x for x, dim in pairs]
            samples.append(cls.apply(*cut))  # type: ignore[no-untyped-call]
        if isinstance(samples[0], Tensor):
            return torch.stack(samples)[:count], 0
        return tuple(torch.stack(parts)[:count] for parts in zip(*samples, strict=True)), (0,) * len(samples[0])


def _make_one(x: Tensor, dim: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = 1
    return x.new_zeros(shape)


def check_batched(*grads: Tensor | None) -> None:
    """Raise for gradients and tangents that are batched by torch's legacy vmap, which calls no rule of ours."""
    if any(grad is not None and torch._C._functorch.is_legacy_batchedtensor(grad) for grad in grads):
        raise RegardError(
            "is_grads_batched=True and vectorize=True batch derivatives in a way that shows no numbers."
            " Use torch.func.vmap, jacrev or hessian, or vectorize=False."
        )
