"""Second derivatives, one strip of queries at a time: each strip by plain autograd on the definitions."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.core import Tile
from regard.engine.tiles.layout import lay_out
from regard.engine.tiles.work import Work, cut_keys, cut_queries


def walk_twice(work: Work, inputs: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients of Σ ⟨first gradients, grads⟩ with respect to the output's gradient, query, key, value and tensors."""
    totals = tuple(torch.zeros_like(x) for x in inputs)
    # the strip's graph keeps a dozen arrays of its size
    depth = max(work.pair.depth // work.pair.footprint, 1)
    layout = lay_out(
        work.call.sizes, work.call.mask, work.pair, whole_rows=True, budget=max(work.budget // (8 * depth), 1)
    )
    for row in layout.rows(work.call.sizes, work.call.mask):
        cuts = [cut_queries, cut_queries, cut_keys, cut_keys]
        with torch.enable_grad():
            # a user's function closes over its tensors: those cannot be replaced by leaves of ours
            own = len(work.of_pair) if work.pair.closes_over else 0
            leaves = [cut(x, row).detach().requires_grad_() for cut, x in zip(cuts, inputs, strict=False)]
            terms = [t if at < own else t.detach().requires_grad_() for at, t in enumerate(inputs[4:])]
            grad, *rest = leaves
            out = _strip(work.holding(tuple(terms)), row, *rest)
            wanted = [*rest, *terms]
            first = torch.autograd.grad(out, wanted, grad, create_graph=True, allow_unused=True)
            parts = [cut(g, row) for cut, g in zip(cuts[1:], grads, strict=False)] + list(grads[3:])
            product = sum((f * g).sum() for f, g in zip(first, parts, strict=True) if f is not None)
        if not isinstance(product, Tensor) or not product.requires_grad:
            continue
        second = torch.autograd.grad(product, [grad, *wanted], allow_unused=True, retain_graph=own > 0)
        targets = [cut(t, row) for cut, t in zip(cuts, totals, strict=False)] + list(totals[4:])
        for target, part in zip(targets, second, strict=True):
            if part is not None:
                target += part
    return totals


def _strip(work: Work, row: Tile, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    call = work.call
    scores = work.pair(query, key, *work.of_heads(row)).to(value.dtype)
    if call.bias is not None:
        scores = scores + call.bias.tile(row)
    allowed = call.allowed(row)
    if allowed is not None:
        allowed = allowed.expand(scores.shape)
    weights = call.weigh(scores, allowed, row)
    keep = call.keep(row)
    return (weights if keep is None else weights * keep) @ value
