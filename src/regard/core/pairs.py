"""The scores of one tile and their gradients: the contract of what `Score.prepare` returns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.core.draws import Draws

Vjp = Callable[[Tensor], tuple[Tensor | None, ...]]


class Pair:
    """The scores of a tile of (query, key) pairs, from rows that `Score.prepare` has prepared, and their gradients.

    Calling it is the definition, in plain differentiable torch. A subclass may add a faster way (`fill`, `vjp`) and a
    form that a compiler fuses well (`expression`, `gradients`); the conformance suite holds them all to the definition.
    `tensors` are the learned tensors used inside the tile; they lead with a head axis (1 or h) unless `keeps_heads`
    says that the tile is given all heads at once.
    """

    tensors: tuple[Tensor, ...] = ()
    keeps_heads: bool = False
    # whether the tensors are reached some other way than through the arguments, so that they cannot be exchanged
    closes_over: bool = False
    # tensors that it uses and that need no gradient: they must not change before backward
    constants: tuple[Tensor, ...] = ()
    # the random numbers it draws, so that backward draws the same
    draws: Draws = Draws()
    # numbers held for each pair of positions, in a tile and in the definition: tile sizes are chosen by them
    footprint: int = 1
    depth: int = 1

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        raise NotImplementedError

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        """The scores without autograd, as a tensor of their own that the caller may overwrite."""
        return self(query, key, *tensors)

    def vjp(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Vjp]:
        """The scores, and their vector-Jacobian product: from their gradient to those of query, key and tensors."""
        inputs = [x.detach().requires_grad_() for x in (query, key, *tensors)]
        with torch.enable_grad():
            scores = self(*inputs)

        def backward(grad: Tensor) -> tuple[Tensor | None, ...]:
            if not scores.requires_grad:
                return (None,) * len(inputs)
            return torch.autograd.grad(scores, inputs, grad.expand_as(scores), allow_unused=True)

        return scores.detach(), backward

    def expression(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        """The scores as one expression for a compiler: no reused buffers, no branches on contents."""
        return self(query, key, *tensors)

    def gradients(self, query: Tensor, key: Tensor, grad: Tensor, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of query, key and tensors as one such expression, from the gradient of the scores."""
        backward = torch.func.vjp(self.expression, query, key, *tensors)[1]
        grads: tuple[Tensor | None, ...] = backward(grad)
        return grads
