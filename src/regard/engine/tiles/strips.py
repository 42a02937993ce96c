"""Second and higher derivatives, one strip of queries at a time, by plain autograd on the definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.core import Tile
from regard.engine.tiles.layout import lay_out
from regard.engine.tiles.work import Work, cut_keys, cut_queries
from regard.engine.vmap import Vmapped, check_batched

Cut = Callable[[Tensor, Tile], Tensor]
Parts = Sequence[Tensor | None]


@dataclass(frozen=True)
class Piece:
    """A function of one strip of queries: how arguments and results are cut from whole tensors, and its order.

    Results have the shapes of the first arguments. `compute` is told whether its results will be differentiated again.
    """

    takes: tuple[Cut, ...]
    gives: tuple[Cut, ...]
    compute: Callable[[Work, Tile, Sequence[Tensor], bool], Parts]
    order: int


def attend_strip(num_tensors: int) -> Piece:
    """The output of a strip of queries, from query, key, value and the tensors of the terms."""
    takes = (cut_queries, cut_keys, cut_keys, *(_take_whole,) * num_tensors)
    return Piece(takes, (cut_queries,), lambda work, row, parts, keep: [_attend(work, row, *parts)], order=0)


def vjp(piece: Piece) -> Piece:
    """The vector-Jacobian product of a piece: it takes a gradient for each result, and gives one for each argument."""

    def compute(work: Work, row: Tile, parts: Sequence[Tensor], keep: bool) -> Parts:
        inputs, grads = parts[: len(piece.takes)], parts[len(piece.takes) :]
        made = piece.compute(work, row, inputs, True)
        used = [(x, grad) for x, grad in zip(made, grads, strict=True) if x is not None and x.requires_grad]
        if not used:
            return [None] * len(inputs)
        # what a function closes over has a history that all strips share
        retain = keep or work.pair.closes_over
        outputs, of_outputs = zip(*used, strict=True)
        return torch.autograd.grad(
            outputs, inputs, of_outputs, create_graph=keep, retain_graph=retain, allow_unused=True
        )

    return Piece(piece.takes + piece.gives, piece.takes, compute, piece.order + 1)


class Strips(Vmapped):
    """A piece summed over all strips, as an autograd function, differentiable any number of times."""

    @staticmethod
    def forward(work: Work, piece: Piece, *args: Tensor) -> tuple[Tensor, ...]:
        totals = tuple(torch.zeros_like(x) for x, _ in zip(args, piece.gives, strict=False))
        # the strip's graph keeps a dozen arrays of its size, and twice as many with each order
        depth = max(work.pair.depth // work.pair.footprint, 1)
        budget = max(work.budget // (depth * 2 ** (piece.order + 1)), 1)
        # a user's function closes over its tensors: those cannot be replaced by leaves of ours
        own = range(3, 3 + len(work.of_pair)) if work.pair.closes_over else ()
        layout = lay_out(work.call.sizes, work.call.mask, work.pair, whole_rows=True, budget=budget)
        for row in layout.rows(work.call.sizes, work.call.mask):
            with torch.enable_grad():
                parts = [
                    work.pair.tensors[at - 3] if at in own else cut(x, row).detach().requires_grad_()
                    for at, (cut, x) in enumerate(zip(piece.takes, args, strict=True))
                ]
                made = piece.compute(work, row, parts, False)
            for total, cut, part in zip(totals, piece.gives, made, strict=True):
                if part is not None:
                    cut(total, row).add_(part)
        return totals

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.work, ctx.piece, *args = inputs
        ctx.save_for_backward(*args, *ctx.work.constants)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        check_batched(*grads)
        args = ctx.saved_tensors[: len(ctx.piece.takes)]
        with torch.autocast(grads[0].device.type, enabled=False):
            return None, None, *Strips.apply(ctx.work, vjp(ctx.piece), *args, *grads)  # type: ignore[no-untyped-call]


def _take_whole(x: Tensor, tile: Tile) -> Tensor:
    return x


def _attend(work: Work, row: Tile, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> Tensor:
    work = work.with_tensors(tensors)
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
