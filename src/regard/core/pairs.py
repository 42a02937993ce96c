"""How one tile of scores is made, and its gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.core.draws import Draws

Pull = Callable[[Tensor], tuple[Tensor | None, ...]]


class Pair:
    """How one tile of scores is made from rows that `Score.prepare` made ready.

    Calling it is the definition, in plain differentiable torch. A subclass may add a faster way (`fill`, `pull`) and a
    form that fuses well (`expression`, `slopes`); the conformance suite holds them all to the definition. `tensors` are
    learned values used inside the tile; they lead with a head axis (1 or h) unless `keeps_heads` says that the tile
    is given all heads at once.
    """

    tensors: tuple[Tensor, ...] = ()
    keeps_heads: bool = False
    # whether the tensors are reached some other way than through the arguments, so that they cannot be exchanged
    closes_over: bool = False
    # tensors that it uses and that want no gradient: they must not change before backward
    constants: tuple[Tensor, ...] = ()
    # what it draws at random, so that backward draws the same
    draws: Draws = Draws()
    # numbers that one pair of positions needs at a time, in a tile and in the definition: tile sizes are chosen by them
    footprint: int = 1
    depth: int = 1

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        raise NotImplementedError

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        """The scores, when no gradient will be asked for."""
        return self(query, key, *tensors)

    def pull(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Pull]:
        """The scores, and a function from their gradient to those of query, key and tensors."""
        inputs = [x.detach().requires_grad_() for x in (query, key, *tensors)]
        with torch.enable_grad():
            scores = self(*inputs)

        def back(grad: Tensor) -> tuple[Tensor | None, ...]:
            if not scores.requires_grad:
                return (None,) * len(inputs)
            return torch.autograd.grad(scores, inputs, grad.expand_as(scores), allow_unused=True)

        return scores.detach(), back

    def expression(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        """The scores as one expression for a compiler: no reused buffers, no branches on contents."""
        return self(query, key, *tensors)

    def slopes(self, query: Tensor, key: Tensor, grad: Tensor, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of `expression`, likewise."""
        back = torch.func.vjp(self.expression, query, key, *tensors)[1]
        grads: tuple[Tensor | None, ...] = back(grad)
        return grads
