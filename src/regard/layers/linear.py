"""Linear layers of the same input, in one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module


def apply_together(layers: Sequence[nn.Linear], rows: Tensor) -> Sequence[Tensor]:
    """The output of each linear layer, by one matrix product where that is less work; the same up to rounding.

    >>> layers = nn.Linear(2, 3), nn.Linear(2, 1)
    >>> [x.shape[-1] for x in apply_together(layers, torch.ones(5, 4, 2))]
    [3, 1]

    Layers that somebody else has a hand in, as by a hook or a `forward` of their own, are called one by one.
    """
    sizes = [layer.out_features if _is_plain(layer) else 0 for layer in layers]
    # with fewer rows than that, to put the weights together takes longer than it saves
    if 0 in sizes or rows.shape[:-1].numel() < sum(sizes):
        return [layer(rows) for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    if len(biases) not in (0, len(layers)):
        return [layer(rows) for layer in layers]
    weight = torch.cat(tuple(layer.weight for layer in layers))
    out = functional.linear(rows, weight, torch.cat(biases) if biases else None)
    made: Sequence[Tensor] = out.split(sizes, -1)
    return made


def _is_plain(layer: nn.Module) -> bool:
    """Whether a call of the layer is its matrix product and nothing else, such as a hook."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    # those of all modules at once
    shared = (
        module._global_forward_hooks, module._global_forward_pre_hooks,
        module._global_backward_hooks, module._global_backward_pre_hooks,
    )  # fmt: skip
    return type(layer) is nn.Linear and "forward" not in layer.__dict__ and not any(hooks) and not any(shared)
