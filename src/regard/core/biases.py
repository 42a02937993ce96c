"""The base class of biases: numbers added to the scores, kept apart from the mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.sizes import Tile
from regard.core.terms import Term


@dataclass(frozen=True, repr=False)
class Bias(Term):
    """Numbers added to the scores by position; gradients have the shape of the tensors that were given."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """The number added for query i of head h of sequence b and key j; index tensors broadcast."""
        raise NotImplementedError

    def tile(self, tile: Tile) -> Tensor:
        """The bias of a whole tile, broadcastable to its shape, in differentiable torch."""
        return self(*tile.index())

    def add_gradients(self, tile: Tile, grad: Tensor, into: tuple[Tensor, ...]) -> None:
        """Add the gradients of `tensors` to `into`, from the gradient of a tile's scores."""
        inputs = [t.detach().requires_grad_() for t in self.tensors]
        if not inputs:
            return
        with torch.enable_grad():
            bias = self.with_tensors(inputs).tile(tile)
        grads = torch.autograd.grad(bias, inputs, reduce_to(grad, bias.shape), allow_unused=True)
        for total, part in zip(into, grads, strict=True):
            if part is not None:
                total += part


def reduce_to(grad: Tensor, shape: torch.Size) -> Tensor:
    """Sum a gradient over the axes along which a value of `shape` was broadcast.

    >>> reduce_to(torch.ones(2, 3), torch.Size([1, 3]))
    tensor([[2., 2., 2.]])
    """
    return grad.sum_to_size(shape) if grad.shape != shape else grad
