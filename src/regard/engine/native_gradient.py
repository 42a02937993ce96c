"""Gradients that torch makes of its own attention kernels, in C++, with hooks for what it leaves undone.

A function of autograd in Python runs on a thread of autograd's, whose caches know nothing of it: a small call waits for
that longer than for its kernels. Hooks are short, and read what torch keeps where it keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.engine.double_backward import Again, differentiate
from regard.engine.vmap import check_batched

Grads = Sequence[Tensor | None]
# what is made of gradients, or None where they stay: of a node of the graph, query, key and value, the gradient of the
# output, and the gradients that torch made
Mend = Callable[[Any, Sequence[Tensor], Tensor, Sequence[Tensor]], Grads | None]


def is_packed() -> bool:
    """Whether somebody packs what is kept for gradients: elsewhere, or in fewer bits."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def keeps_alone(rows: Sequence[Tensor]) -> bool:
    """Whether torch keeps the rows for their gradients as they are: nobody packs what is kept, and each has one."""
    return not is_packed() and all([x.requires_grad for x in rows])


def steps_well(x: Tensor) -> bool:
    """Whether every row of it is aligned if the first one is."""
    steps = [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1]
    return x.stride(-1) == 1 and all([step % 8 == 0 and step > 0 for step in steps[:-1]])


def align(x: Tensor) -> Tensor:
    """Rows as kernels on CUDA read them, sixteen bytes at a time: elsewhere they fault. A copy, where need be."""
    # cuDNN takes no axis that was broadcast
    if x.data_ptr() % 16 == 0 and steps_well(x) and 0 not in x.stride():
        return x
    return x.clone(memory_format=torch.contiguous_format)


def guard_gradient(out: Tensor, again: Again | None, mend: Mend | None) -> Tensor:
    """`out` of one of torch's kernels, with hooks around its gradient.

    `mend` changes what they made of it, or gives others, and `again` is the call where gradients are differentiated.
    Neither may hold `out`: it would never be freed.
    """
    node, strides = out.grad_fn, out.stride()
    assert node is not None, "its rows have gradients"

    def prepare(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
        grad = grads[0]
        if grad is None:
            return None
        check_batched(grad)
        if grad.is_neg():
            # hooks read numbers where they lie, which have the other sign there
            aligned = align(grad.resolve_neg())
        elif grad.stride() == strides and grad.data_ptr() % 16 == 0:
            # as the kernel's own output lies
            return None
        else:
            aligned = align(grad)
        return None if aligned is grad else (aligned, *grads[1:])

    def finish(made: tuple[Tensor | None, ...], grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
        is_wanted = again is not None and torch.is_grad_enabled()
        if grads[0] is None or (mend is None and not is_wanted):
            return None
        node: Any = torch._C._current_autograd_node()
        if node is None:
            raise RegardError(
                "compiled autograd does not show what torch keeps for this gradient. Use backend='fused', or leave the"
                " backward pass to autograd."
            )
        rows = node._saved_query, node._saved_key, node._saved_value
        dquery, dkey, dvalue, *rest = made
        if again is not None and is_wanted:
            # a graph of the gradients
            wants = [x is not None for x in (dquery, dkey, dvalue)]
            return *differentiate(again, rows, wants, grads[0]), *rest
        assert mend is not None, "looked at above"
        if dquery is not None and dkey is not None and dvalue is not None:
            found = mend(node, rows, grads[0], (dquery, dkey, dvalue))
            return None if found is None else (*found, *rest)
        # nobody asked for all of them, and each is one to look at
        whole = [torch.zeros_like(row) if x is None else x for x, row in zip(made, rows, strict=False)]
        found = mend(node, rows, grads[0], whole)
        if found is None:
            return None
        return *(None if x is None else one for x, one in zip(made, found, strict=False)), *rest

    node.register_prehook(prepare)
    node.register_hook(finish)
    return out
