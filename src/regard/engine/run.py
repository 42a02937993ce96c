"""Running a planned call: shapes folded, rows lifted, NaN under a mask taken out, a backend run, observers told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from regard.core.bits import draw_seed
from regard.engine.call import Call
from regard.engine.check import Terms, check_call
from regard.engine.fold import fold, lift_rows, lift_terms, unfold
from regard.engine.plan import BACKENDS, Backend, Plan, plan
from regard.engine.poison import find_poison
from regard.mask import Full
from regard.score import Dot

# who is told of every call that was carried out: the call with its terms as they were given, query, key, value and out
OBSERVERS: list[Callable[[Call, Tensor, Tensor, Tensor, Tensor], None]] = []


def run_planned(
    plan: Plan, call: Call, generator: torch.Generator | None, terms: Terms, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """The result of a planned call, in the caller's own axes; `terms` are its terms as they were given."""
    return _carry_out(plan, _draw(call, generator), terms, query, key, value)


def run_seeded(
    query: Tensor, key: Tensor, value: Tensor, terms: Terms, dropout: float, seed: int, backend: str,
    is_told: bool = True,
) -> Tensor:  # fmt: skip
    """`attend` on plain tensors, with the seed of its dropout already drawn; observers are told of it, or not."""
    call = check_call(query, key, value, terms, dropout)
    return _carry_out(plan(call, backend), replace(call, seed=seed), terms, query, key, value, is_told)


def _draw(call: Call, generator: torch.Generator | None) -> Call:
    """The call with its random seeds, drawn only now: a call that is refused leaves the generator as it was."""
    weigh = call.weigh.settle(call.sizes)
    if weigh is call.weigh and not call.dropout:
        return call
    return replace(call, weigh=weigh, seed=draw_seed(generator) if call.dropout else 0)


def _carry_out(
    plan: Plan, call: Call, terms: Terms, query: Tensor, key: Tensor, value: Tensor, is_told: bool = True
) -> Tensor:
    out = _compute(plan, call, query, key, value)
    if OBSERVERS and is_told:
        # what a weigher drew stays drawn
        given = replace(call, score=terms[0], mask=terms[2], bias=terms[3])
        for observe in tuple(OBSERVERS):
            observe(given, query, key, value, out)
    return out


def _compute(plan: Plan, call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    taker, sizes = BACKENDS[plan.backend], call.sizes
    if plan.by_name and not call.by_name:
        call = replace(call, by_name=True)
    if taker.LIFTS:
        # before the fold, so that the gradients of broadcast sequences are summed in the compute dtype
        query, key, value = lift_rows(call, query, key, value)
    query, key, value = fold(query, sizes), fold(key, sizes), fold(value, sizes)
    # without a mask nothing can hide
    poisoned = None if taker.HANDLES_NAN or type(call.mask) is Full else find_poison(call, query, key, value)
    if poisoned is None:
        return unfold(_run(taker, call, query, key, value), sizes)
    out = _run(taker, call, *poisoned.clean)
    if poisoned.is_widespread:
        # the whole result is lost anyway: NaN may spread in it as in plain torch
        out = torch.where(poisoned.rows[..., None], _run_tiled(call, query, key, value), out)
    else:
        out = poisoned.mend(out, query, key, value)
    return unfold(out, sizes)


def _run(backend: Backend, call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The result of folded rows, which are lifted where the backend wants them so."""
    if backend.errs is not None and backend.errs(call, query, key, value):
        return _run_tiled(call, query, key, value)
    lifted = call
    if backend.LIFTS:
        lifted, key, value = lift_terms(call, key, value)
    device = call.sizes.device.type
    # autocast would undo the lift: products of tiles are float32 on purpose. Switching it off takes time, even where it
    # is not on, that a small call does not have
    is_cast = torch.is_autocast_enabled(device) and (backend.AUTOCASTS or type(call.score) is not Dot)
    once = backend.TWICE_DIFFERENTIABLE or call.by_name or not call.needs_grad or torch.compiler.is_compiling()
    again = None if once else partial(_run_again, call)
    with torch.autocast(device, enabled=False) if is_cast else nullcontext():
        return backend.run(lifted, query, key, value, again).to(call.sizes.dtype)


def _run_tiled(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same by `tiled`, which takes everything, whoever was to have the call."""
    return _run(BACKENDS["tiled"], call, *lift_rows(call, query, key, value))


def _run_again(call: Call, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> Tensor:
    """The call by `tiled`, which differentiates as often as one likes, with these tensors in its terms."""
    rest = iter(tensors)
    score, weigh = call.score.with_tensors(rest), call.weigh.with_tensors(rest)
    bias = None if call.bias is None else call.bias.with_tensors(rest)
    return _run_tiled(replace(call, score=score, weigh=weigh, bias=bias), query, key, value)
