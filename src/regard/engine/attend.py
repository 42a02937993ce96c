"""The one function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Bias, Mask, Score, Weigh
from regard.core.bits import draw_seed
from regard.engine.backends import fused, sdpa
from regard.engine.call import Call
from regard.engine.check import as_bias, as_mask, as_score, as_weigh, check, check_terms
from regard.engine.fold import fold, lift, lift_rows, unfold
from regard.engine.plan import BACKENDS, Backend, Plan, plan
from regard.engine.poison import quarantine
from regard.engine.whole import attend_whole, can_travel
from regard.mask import Full
from regard.score import Dot
from regard.weigh import Softmax

_Terms = tuple[Score, Weigh, Mask, Bias | None]
_DOT, _SOFTMAX, _FULL = Dot(), Softmax(), Full()

# who is told of every call that was carried out: the call with its terms as they were given, query, key, value and out
OBSERVERS: list[Callable[[Call, Tensor, Tensor, Tensor, Tensor], None]] = []


def attend(
    query: Float[Tensor, "*b h i d"],
    key: Float[Tensor, "*b g j c"],
    value: Float[Tensor, "*b g j e"],
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] = _DOT,
    weigh: Weigh = _SOFTMAX,
    mask: Mask | Tensor = _FULL,
    bias: Bias | Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str = "auto",
) -> Float[Tensor, "*b h i e"]:
    """For each query i, the average of the values j, weighted by how much i regards j.

    >>> from regard.mask import Causal
    >>> query = key = value = torch.eye(3).view(1, 1, 3, 3)
    >>> attend(query, key, value, mask=Causal())[0, 0, 0]  # the first query sees only itself
    tensor([1., 0., 0.])

    A query with no allowed key returns zeros. With four axes or more the one before the last two is heads, and key and
    value may have fewer of them, each serving a group of query heads. `dropout` acts whenever it is above zero; its
    random bits come from `generator` and are the same on every backend. `backend` fixes how, never what: see `explain`.
    """
    plan = _plan(query, key, value, score, weigh, mask, bias, dropout, generator, backend)
    terms = as_score(score), as_weigh(weigh), as_mask(mask), as_bias(bias)
    if torch.compiler.is_compiling() and plan.backend != "fused":
        if not all(map(can_travel, terms)):
            # the graph breaks here: nothing follows a caller's own function
            run: Callable[..., Tensor] = torch.compiler.disable(_carry_out_eagerly)
            return run(plan, generator, terms, query, key, value)
        seed = draw_seed(generator) if dropout else 0
        drawn = terms[1].settle(plan.call.sizes)
        options = {"dropout": dropout, "seed": seed, "backend": backend}
        return attend_whole(query, key, value, (terms[0], drawn, *terms[2:]), options)
    return _carry_out(plan, _draw(plan.call, generator), terms, query, key, value)


def attend_seeded(
    query: Tensor, key: Tensor, value: Tensor, score: Score, weigh: Weigh, mask: Mask, bias: Bias | None,
    dropout: float, seed: int, backend: str,
) -> Tensor:  # fmt: skip
    """`attend` with the seed of its dropout already drawn."""
    plan = _plan(query, key, value, score, weigh, mask, bias, dropout, None, backend)
    return _carry_out(plan, replace(plan.call, seed=seed), (score, weigh, mask, bias), query, key, value)


def _carry_out_eagerly(
    plan: Plan, generator: torch.Generator | None, terms: _Terms, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    return _carry_out(plan, _draw(plan.call, generator), terms, query, key, value)


def _carry_out(plan: Plan, call: Call, terms: _Terms, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    out = _compute(plan, call, query, key, value)
    if OBSERVERS:
        # what a weigher drew stays drawn
        given = replace(call, score=terms[0], mask=terms[2], bias=terms[3])
        for observe in tuple(OBSERVERS):
            observe(given, query, key, value, out)
    return out


def _compute(plan: Plan, call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    taker, sizes = BACKENDS[plan.backend], call.sizes
    if taker.LIFTS:
        # before the fold, so that the gradients of broadcast sequences are summed in the compute dtype
        query, key, value = lift_rows(call, query, key, value)
    query, key, value = fold(query, sizes), fold(key, sizes), fold(value, sizes)
    if taker.HEALS or type(call.mask) is Full:
        # without a mask nothing can hide
        return unfold(_run(taker, call, query, key, value), sizes)
    run, run_raw = (partial(_run, which, call) for which in (taker, BACKENDS["tiled"]))
    return unfold(quarantine(call, query, key, value, run, run_raw), sizes)


def explain(
    query: Float[Tensor, "*b h i d"],
    key: Float[Tensor, "*b g j c"],
    value: Float[Tensor, "*b g j e"],
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] = _DOT,
    weigh: Weigh = _SOFTMAX,
    mask: Mask | Tensor = _FULL,
    bias: Bias | Tensor | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Plan:
    """What `attend` would do with the same arguments: its backend, why not the others, and the cost; nothing is run.

    >>> query = key = value = torch.zeros(1, 8, 1024, 64)
    >>> explain(query, key, value).backend
    'sdpa'

    Print it for the whole plan.
    """
    return _plan(query, key, value, score, weigh, mask, bias, dropout, None, backend)


def _plan(
    query: Tensor, key: Tensor, value: Tensor, score: Score | Callable[[Tensor, Tensor], Tensor], weigh: Weigh,
    mask: Mask | Tensor, bias: Bias | Tensor | None, dropout: float, generator: torch.Generator | None, backend: str,
) -> Plan:  # fmt: skip
    score, weigh, mask, bias = as_score(score), as_weigh(weigh), as_mask(mask), as_bias(bias)
    sizes = check(query, key, value, score)
    check_terms(sizes, score, weigh, mask, bias, dropout, generator)
    held = (*score.tensors, *weigh.tensors, *(() if bias is None else bias.tensors))
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value, *held))
    settled = None if bias is None else bias.settle(sizes)
    return plan(Call(sizes, score, weigh, mask.settle(sizes), settled, dropout, needs_grad=needs_grad), backend)


def _draw(call: Call, generator: torch.Generator | None) -> Call:
    """The call with its seeds, drawn only now: a call that is refused leaves the generator as it was."""
    weigh = call.weigh.settle(call.sizes)
    if weigh is call.weigh and not call.dropout:
        return call
    return replace(call, weigh=weigh, seed=draw_seed(generator) if call.dropout else 0)


def _run(backend: Backend, call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    # what torch's kernels get wrong goes around them, named or not
    if backend is sdpa and sdpa.errs(call, query, key, value):
        backend = BACKENDS["tiled"]
    if backend.LIFTS:
        call, query, key, value = lift(call, query, key, value)
    device = call.sizes.device.type
    # autocast would undo the lift: products of tiles are float32 on purpose. Switching it off takes time, even where it
    # is not on, that a small call does not have; of a dot product, the kernels multiply all there is
    is_cast = torch.is_autocast_enabled(device) and not (backend is fused and type(call.score) is Dot)
    with torch.autocast(device, enabled=False) if is_cast else nullcontext():
        return backend.run(call, query, key, value).to(call.sizes.dtype)
