"""The one attention function, `attend`, and `explain`."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Bias, Mask, RegardError, Score, Weigh
from regard.core.bits import draw_seed
from regard.engine.call import Call
from regard.engine.check import Terms, as_terms, check, check_call, check_terms
from regard.engine.custom_op import attend_as_operator, can_pack
from regard.engine.known import keep, read_kind, recall
from regard.engine.plan import BACKENDS, Plan, plan
from regard.engine.run import OBSERVERS, run_planned
from regard.engine.transform import attend_transformed, is_transformed
from regard.mask import Full
from regard.score import Dot
from regard.weigh import Softmax

_DOT, _SOFTMAX, _FULL = Dot(), Softmax(), Full()


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
    numbers: list[Tensor] = []
    kind = read_kind(query, key, value, (score, weigh, mask, bias), dropout, backend, numbers)
    if kind is not None and (known := recall(kind)) is not None and type(generator) in (NoneType, torch.Generator):
        again = known.find_again(numbers)
        if again is not None and not OBSERVERS and not torch._C._len_torch_dispatch_stack():
            return again(query, key, value)
        call = known.renew(score, weigh, mask, bias, numbers)
        return run_planned(known.plan, call, generator, as_terms(score, weigh, mask, bias), query, key, value)
    terms = as_terms(score, weigh, mask, bias)
    if not torch.compiler.is_compiling() and is_transformed():
        check_terms(check(query, key, value, terms[0]), *terms, dropout, generator)
        return attend_transformed(query, key, value, terms, dropout, generator, backend)
    call = check_call(query, key, value, terms, dropout, generator)
    is_meta = call.sizes.device.type == "meta"
    if is_meta or (torch.compiler.is_compiling() and not _can_trace(call, backend)):
        if is_meta:
            _check_meta(call, backend, terms)
        if not all(map(can_pack, terms)):
            # the graph breaks here: nothing follows a caller's own function
            run: Callable[..., Tensor] = torch.compiler.disable(run_planned)
            return run(plan(call, backend), call, generator, terms, query, key, value)
        seed = draw_seed(generator) if dropout else 0
        drawn = terms[1].settle(call.sizes)
        options = {"dropout": dropout, "seed": seed, "backend": backend}
        return attend_as_operator(query, key, value, (terms[0], drawn, *terms[2:]), options)
    planned = plan(call, backend)
    if kind is not None:
        keep(kind, planned, terms, query, key, value)
    return run_planned(planned, call, generator, terms, query, key, value)


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
    terms = as_terms(score, weigh, mask, bias)
    return plan(check_call(query, key, value, terms, dropout), backend)


def _check_meta(call: Call, backend: str, terms: Terms) -> None:
    """Raise where a named backend does not take tensors without numbers, or a caller's function would need some."""
    plan(call, backend)
    for term in terms:
        if not can_pack(term):
            raise RegardError(f"{term} needs numbers, and tensors on meta have none.")


def _can_trace(call: Call, backend: str) -> bool:
    """Whether a compiler may see the call as it is: kernels that are its own, unless their mask looks at numbers."""
    if call.mask.is_data_dependent or not any(one.TRACEABLE and one.refuse(call) is None for one in BACKENDS.values()):
        return False
    return BACKENDS[plan(call, backend).backend].TRACEABLE
