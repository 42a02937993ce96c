"""Linear layers of the same input, in one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module

# numbers of weights that a GPU puts together in less time than it takes to start a kernel
MOST = 2**22


def apply_together(layers: Sequence[nn.Linear], rows: Tensor) -> Sequence[Tensor]:
    """The output of each linear layer, by one matrix product where that is less work; the same up to rounding.

    >>> layers = nn.Linear(2, 3), nn.Linear(2, 1)
    >>> [x.shape[-1] for x in apply_together(layers, torch.ones(5, 4, 2))]
    [3, 1]

    Layers that somebody else has a hand in, as by a hook or a `forward` of their own, are called one by one.
    """
    out = multiply_together(layers, rows)
    if out is None:
        return [layer(rows) for layer in layers]
    made: Sequence[Tensor] = out.split([layer.out_features for layer in layers], -1)
    return made


def multiply_together(layers: Sequence[nn.Linear], rows: Tensor) -> Tensor | None:
    """The outputs of `apply_together`, one beside the other in one tensor; None where layers are called one by one."""
    sizes = [layer.out_features if _is_plain(layer) else 0 for layer in layers]
    if 0 in sizes or not _pays(rows, sum(sizes)):
        return None
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    if len(biases) not in (0, len(layers)):
        return None
    weight = torch.cat([layer.weight for layer in layers])
    return functional.linear(rows, weight, torch.cat(biases) if biases else None)


def _pays(rows: Tensor, size: int) -> bool:
    """Whether to put weights together, for outputs of this size in all, takes less than it saves."""
    if rows.shape[:-1].numel() >= size:
        return True
    # a GPU that learns from few rows waits for its kernels to be started, and one product has a third of them
    learns = rows.is_cuda and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return learns and size * rows.shape[-1] <= MOST


def _is_plain(layer: nn.Module) -> bool:
    """Whether a call of the layer is its matrix product and nothing else, such as a hook."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    # those of all modules at once
    shared = (
        module._global_forward_hooks, module._global_forward_pre_hooks,
        module._global_backward_hooks, module._global_backward_pre_hooks,
    )  # fmt: skip
    return type(layer) is nn.Linear and "forward" not in layer.__dict__ and not any(hooks) and not any(shared)
