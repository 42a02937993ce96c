"""The one function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Bias, Mask, RegardError, Score, Weigh
from regard.core.bits import draw_seed
from regard.engine.backends import fused, sdpa
from regard.engine.call import Call
from regard.engine.check import as_bias, as_mask, as_score, as_weigh, check, check_terms
from regard.engine.fold import fold, lift, lift_rows, unfold
from regard.engine.plan import BACKENDS, Backend, Plan, plan
from regard.engine.poison import quarantine
from regard.engine.transform import attend_transformed, is_transformed
from regard.engine.twice import differentiate_by
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
    terms = as_score(score), as_weigh(weigh), as_mask(mask), as_bias(bias)
    if not torch.compiler.is_compiling() and is_transformed():
        check_terms(check(query, key, value, terms[0]), *terms, dropout, generator)
        return attend_transformed(query, key, value, terms, dropout, generator, backend)
    call = _describe(query, key, value, *terms, dropout, generator)
    is_meta = call.sizes.device.type == "meta"
    if is_meta or (torch.compiler.is_compiling() and not _can_trace(call, backend)):
        if is_meta:
            _check_meta(call, backend, terms)
        if not all(map(can_travel, terms)):
            # the graph breaks here: nothing follows a caller's own function
            run: Callable[..., Tensor] = torch.compiler.disable(_attend_described)
            return run(call, generator, backend, terms, query, key, value)
        seed = draw_seed(generator) if dropout else 0
        drawn = terms[1].settle(call.sizes)
        options = {"dropout": dropout, "seed": seed, "backend": backend}
        return attend_whole(query, key, value, (terms[0], drawn, *terms[2:]), options)
    return _attend_described(call, generator, backend, terms, query, key, value)


def attend_seeded(
    query: Tensor, key: Tensor, value: Tensor, score: Score, weigh: Weigh, mask: Mask, bias: Bias | None,
    dropout: float, seed: int, backend: str, is_told: bool = True,
) -> Tensor:  # fmt: skip
    """`attend` on plain tensors, with the seed of its dropout already drawn; observers are told of it, or not."""
    call = _describe(query, key, value, score, weigh, mask, bias, dropout, None)
    terms = score, weigh, mask, bias
    return _carry_out(plan(call, backend), replace(call, seed=seed), terms, query, key, value, is_told)


def _attend_described(
    call: Call, generator: torch.Generator | None, backend: str, terms: _Terms, query: Tensor, key: Tensor,
    value: Tensor,
) -> Tensor:  # fmt: skip
    return _carry_out(plan(call, backend), _draw(call, generator), terms, query, key, value)


def _carry_out(
    plan: Plan, call: Call, terms: _Terms, query: Tensor, key: Tensor, value: Tensor, is_told: bool = True
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
    if taker.LIFTS:
        # before the fold, so that the gradients of broadcast sequences are summed in the compute dtype
        query, key, value = lift_rows(call, query, key, value)
    query, key, value = fold(query, sizes), fold(key, sizes), fold(value, sizes)
    if taker.HEALS or type(call.mask) is Full:
        # without a mask nothing can hide
        return unfold(_run(taker, call, plan.by_name, query, key, value), sizes)
    run, run_raw = (partial(_run, which, call, plan.by_name) for which in (taker, BACKENDS["tiled"]))
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
    terms = as_score(score), as_weigh(weigh), as_mask(mask), as_bias(bias)
    return plan(_describe(query, key, value, *terms, dropout, None), backend)


def _describe(
    query: Tensor, key: Tensor, value: Tensor, score: Score, weigh: Weigh, mask: Mask, bias: Bias | None,
    dropout: float, generator: torch.Generator | None,
) -> Call:  # fmt: skip
    """The call, checked and settled but for what it draws."""
    sizes = check(query, key, value, score)
    check_terms(sizes, score, weigh, mask, bias, dropout, generator)
    call = Call(sizes, score, weigh, mask.settle(sizes), None if bias is None else bias.settle(sizes), dropout)
    if torch.is_grad_enabled():
        rows = query, key, value
        call = replace(call, needs_grad=any(x.requires_grad for x in (*rows, *_list_tensors(call))))
    return call


def _check_meta(call: Call, backend: str, terms: _Terms) -> None:
    """Complain where a named backend does not take tensors without numbers, or a caller's function would need some."""
    plan(call, backend)
    for term in terms:
        if not can_travel(term):
            raise RegardError(f"{term} needs numbers, and tensors on meta have none.")


def _can_trace(call: Call, backend: str) -> bool:
    """Whether a compiler may see the call as it is: the kernels of `fused`, unless their mask looks at numbers."""
    return not call.mask.looks and fused.refuse(call) is None and plan(call, backend).backend == "fused"


def _draw(call: Call, generator: torch.Generator | None) -> Call:
    """The call with its seeds, drawn only now: a call that is refused leaves the generator as it was."""
    weigh = call.weigh.settle(call.sizes)
    if weigh is call.weigh and not call.dropout:
        return call
    return replace(call, weigh=weigh, seed=draw_seed(generator) if call.dropout else 0)


def _run(backend: Backend, call: Call, by_name: bool, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    # what torch's kernels get wrong goes around them, named or not
    if backend is sdpa and sdpa.errs(call, query, key, value):
        backend = BACKENDS["tiled"]
    given = query, key, value
    if backend.LIFTS:
        call, query, key, value = lift(call, query, key, value)
    device = call.sizes.device.type
    # autocast would undo the lift: products of tiles are float32 on purpose. Switching it off takes time, even where it
    # is not on, that a small call does not have; of a dot product, the kernels multiply all there is
    is_cast = torch.is_autocast_enabled(device) and not (backend is fused and type(call.score) is Dot)
    with torch.autocast(device, enabled=False) if is_cast else nullcontext():
        out = backend.run(call, query, key, value).to(call.sizes.dtype)
    if backend.TWICE or by_name or not call.needs_grad or torch.compiler.is_compiling():
        return out
    return differentiate_by(partial(_run_again, call), out, (*given, *_list_tensors(call)), call.watched)


def _run_again(call: Call, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> Tensor:
    """The call by `tiled`, which differentiates as often as one likes, with these tensors in its terms."""
    rest = iter(tensors)
    score, weigh = call.score.with_tensors(rest), call.weigh.with_tensors(rest)
    bias = None if call.bias is None else call.bias.with_tensors(rest)
    call = replace(call, score=score, weigh=weigh, bias=bias)
    return _run(BACKENDS["tiled"], call, False, query, key, value)


def _list_tensors(call: Call) -> tuple[Tensor, ...]:
    """What gradients flow to besides query, key and value."""
    return (*call.score.tensors, *call.weigh.tensors, *(() if call.bias is None else call.bias.tensors))
