"""Gradients that torch makes of its own attention kernels, in C++, with hooks for what it leaves undone.

A function of autograd in Python runs on a thread of autograd's, whose caches know nothing of it: a small call waits for
that longer than for its kernels. Hooks are short, and read what torch keeps where it keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.engine.double_backward import Again, differentiate
from regard.engine.vmap import check_batched

Grads = Sequence[Tensor | None]
# what is made of the gradients of query, key and value: (node of the graph, gradient of the output, gradients)
Mend = Callable[[Any, Tensor, list[Tensor]], Grads | None]


def keeps_alone(rows: Sequence[Tensor]) -> bool:
    """Whether torch keeps the rows for their gradients as they are: nobody packs what is kept, and each has one."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return False
    return all([x.requires_grad for x in rows])


def guard_gradient(out: Tensor, align: Callable[[Tensor], Tensor], again: Again | None, mend: Mend | None) -> Tensor:
    """`out` of one of torch's kernels, with hooks around its gradient.

    `align` gives the output's gradient as kernels read it, `mend` changes what they made of it, or gives others, and
    `again` is the call where gradients are differentiated. None of them may hold `out`: it would never be freed.
    """
    node = out.grad_fn
    assert node is not None, "its rows have gradients"

    def prepare(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
        grad = grads[0]
        if grad is None:
            return None
        check_batched(grad)
        aligned = align(grad)
        return None if aligned is grad else (aligned, *grads[1:])

    def finish(made: tuple[Tensor | None, ...], grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
        grad, wants = grads[0], [x is not None for x in made[:3]]
        if grad is None or not any(wants):
            return None
        node: Any = torch._C._current_autograd_node()
        found: Grads | None = None
        if again is not None and torch.is_grad_enabled():
            # a graph of the gradients is wanted
            found = differentiate(again, (node._saved_query, node._saved_key, node._saved_value), wants, grad)
        elif mend is not None:
            rows = node._saved_query, node._saved_key, node._saved_value
            # of rows whose gradient nobody asked for this time, one to look at
            whole = [torch.zeros_like(row) if x is None else x for x, row in zip(made, rows, strict=False)]
            found = mend(node, grad, whole)
        if found is None:
            return None
        return (*(x if wanted else None for x, wanted in zip(found, wants, strict=True)), *made[3:])

    node.register_prehook(prepare)
    node.register_hook(finish)
    return out
