"""A call under `torch.func.grad`, `vmap`, `jvp`, `hessian` and forward-mode derivatives.

Backends look at numbers, which transforms do not show. So a call is one operation to them, and where they end it is
`attend` itself on plain tensors; its derivatives, of any order, are operations of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.core import RegardError, Score
from regard.core.bits import draw_number
from regard.core.closures import probe
from regard.engine.check import Terms
from regard.engine.run import run_seeded
from regard.engine.vmap import Vmapped, check_batched
from regard.weigh import Hard

Run = Callable[..., tuple[Tensor, ...]]


def is_transformed() -> bool:
    """Whether a transform of torch.func, or forward-mode differentiation, is active."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active or forward_ad._current_level >= 0


def attend_transformed(
    query: Tensor, key: Tensor, value: Tensor, terms: Terms, dropout: float,
    generator: torch.Generator | None, backend: str,
) -> Tensor:  # fmt: skip
    """`attend` of these terms, as one operation that transforms of torch.func pass through."""
    score, weigh, mask, bias = terms
    held = [x for term in terms if term is not None for x in term.all_tensors]
    if type(score).prepare is Score.prepare:
        _check_closure(score, query, key, held)
    # as inputs: vmap decides whether its samples share them
    drawn = seed = torch.zeros(())
    if isinstance(weigh, Hard) and weigh.draws:
        drawn = draw_number(weigh.generator)
    if dropout:
        seed = draw_number(generator)

    def run(drawn: Tensor, seed: Tensor, query: Tensor, key: Tensor, value: Tensor, *held: Tensor) -> tuple[Tensor]:
        rest = iter(held)
        own = (
            score.with_all_tensors(rest),
            weigh.with_all_tensors(rest),
            mask.with_all_tensors(rest),
            None if bias is None else bias.with_all_tensors(rest),
        )
        if isinstance(own[1], Hard) and own[1].draws:
            own = own[0], replace(own[1], seed=int(drawn)), *own[2:]
        # with gradients the call is made once more, which observers were told of
        is_told = not torch.is_grad_enabled()
        return (run_seeded(query, key, value, own, dropout, int(seed), backend, is_told),)

    given = [drawn, seed, query, key, value, *held]
    learns = tuple(at for at, x in enumerate(given) if at > 1 and x.is_floating_point())
    out: Tensor = _Operation.apply(run, learns, *given)[0]  # type: ignore[no-untyped-call]
    return out


def _check_closure(score: Score, query: Tensor, key: Tensor, held: Sequence[Tensor]) -> None:
    seen, sources = probe(score, query, key, *held)
    called = f"score function {score.called}"
    if sources:
        raise RegardError(
            f"{called} draws random numbers, which torch.func would draw anew for each derivative: draw them before, or"
            " differentiate by torch.autograd."
        )
    for x in (*seen.found.values(), *seen.constants.values()):
        if x.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(x):
            raise RegardError(
                f"{called} closes over a tensor that torch.func cannot reach: make it a torch.nn.Module with the tensor"
                " as its parameter, or differentiate by torch.autograd."
            )


class _Operation(Vmapped):
    """A function of plain tensors as one operation; `learns` are the arguments that have gradients."""

    @staticmethod
    def forward(run: Run, learns: tuple[int, ...], *args: Tensor) -> tuple[Tensor, ...]:
        return run(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.run, ctx.learns, *args = inputs
        ctx.save_for_backward(*args)
        ctx.save_for_forward(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        check_batched(*grads)
        args = ctx.saved_tensors
        wanted = [at for at in ctx.learns if ctx.needs_input_grad[2 + at]]
        made = dict(zip(wanted, _differentiate(ctx, args, _vjp(ctx.run, wanted, len(args)), grads), strict=True))
        return None, None, *(made.get(at) for at in range(len(args)))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        check_batched(*tangents)
        moved = [at for at in ctx.learns if tangents[2 + at] is not None]
        args = ctx.saved_tensors
        return _differentiate(ctx, args, _jvp(ctx.run, moved, len(args)), [tangents[2 + at] for at in moved])


def _differentiate(ctx: Any, args: Sequence[Tensor], run: Run, more: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """A derivative of the operation, at the same arguments and along `more`."""
    learns = (*ctx.learns, *range(len(args), len(args) + len(more)))
    made: tuple[Tensor, ...] = _Operation.apply(run, learns, *args, *more)  # type: ignore[no-untyped-call]
    return made


def _vjp(run: Run, wanted: Sequence[int], count: int) -> Run:
    """The gradients of the wanted arguments, from those of all results: a vector-Jacobian product."""

    def backward(*args: Tensor) -> tuple[Tensor, ...]:
        keep = torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = _track(args[:count], wanted, keep)
            made = run(*inputs)
        return _grad(made, [inputs[at] for at in wanted], args[count:], keep)

    return backward


def _jvp(run: Run, moved: Sequence[int], count: int) -> Run:
    """The Jacobian-vector product, as the vector-Jacobian product of the vector-Jacobian product."""

    def forward(*args: Tensor) -> tuple[Tensor, ...]:
        keep = torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = _track(args[:count], moved, keep)
            made = run(*inputs)
            along = [torch.zeros_like(x).requires_grad_() for x in made]
            pulled = _grad(made, [inputs[at] for at in moved], along, True)
        return _grad(pulled, along, args[count:], keep)

    return forward


def _track(args: Sequence[Tensor], wanted: Sequence[int], keep: bool) -> list[Tensor]:
    """The arguments, those that are wanted as leaves; with their own history only where that is to be kept."""
    return [x if keep and x.requires_grad else x.detach().requires_grad_(at in wanted) for at, x in enumerate(args)]


def _grad(made: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Tensor], keep: bool) -> tuple[Tensor, ...]:
    used = [(x, grad) for x, grad in zip(made, grads, strict=True) if x.requires_grad]
    if not used:
        return tuple(torch.zeros_like(x) for x in inputs)
    outputs, of_outputs = zip(*used, strict=True)
    return torch.autograd.grad(
        outputs, inputs, of_outputs, create_graph=keep, allow_unused=True, materialize_grads=True
    )
