"""Validation of a call: every rule about its tensors and terms, and the only place that raises for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import NoneType

import torch
from torch import Tensor

from regard.bias import Dense
from regard.core import Bias, Mask, RegardError, Score, Sizes, Term, Weigh
from regard.core.kinds import describe, misfit_kind
from regard.core.terms import read_fields
from regard.engine.call import Call
from regard.mask import Allowed
from regard.score import SCORES, Custom
from regard.weigh import WEIGHS

# torch.compile cannot evaluate annotations: have it done before, of all terms of the library
_KNOWN = [named[name] for named in (SCORES, WEIGHS) for name in named.own]
read_fields(Term)

Terms = tuple[Score, Weigh, Mask, Bias | None]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check(query: Tensor, key: Tensor, value: Tensor, score: Score) -> Sizes:
    """The sizes of a call; raises where its tensors do not fit together."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor):
            raise RegardError(f"{name} must be a torch.Tensor, got {type(x).__name__}.")
        if x.is_nested:
            raise RegardError(
                f"{name} must be a dense tensor, got a nested one: pad it (torch.nested.to_padded_tensor), and say how"
                " long each sequence is by mask=Lengths(...)."
            )
        if x.layout != torch.strided:
            raise RegardError(f"{name} must be a dense tensor, got layout {str(x.layout).removeprefix('torch.')}.")
    dtype, device = query.dtype, query.device
    if dtype not in DTYPES:
        raise RegardError(f"query must be float32, bfloat16, float16 or float64, got {_name(dtype)}.")
    if not key.dtype == value.dtype == dtype:
        raise RegardError(
            f"query, key and value must share one dtype: query is {_name(dtype)}, key {_name(key.dtype)},"
            f" value {_name(value.dtype)}."
        )
    if not key.device == value.device == device:
        raise RegardError(
            f"query, key and value must lie on one device: query is on {device}, key on {key.device},"
            f" value on {value.device}."
        )
    q, k, v = query.shape, key.shape, value.shape
    if not len(q) == len(k) == len(v) >= 2:
        raise RegardError(
            "query, key and value must have the same number of axes, at least two (…, i, d):"
            f" query is {tuple(q)}, key {tuple(k)}, value {tuple(v)}."
        )
    if q[-1] != k[-1] and not score.any_widths:
        raise RegardError(
            f"query and key must share their last size d: query has d={q[-1]} (shape {tuple(q)}),"
            f" key has d={k[-1]} (shape {tuple(k)})."
        )
    if k[-2] != v[-2]:
        raise RegardError(
            f"key and value must hold the same number of keys j: key has j={k[-2]} (shape {tuple(k)}),"
            f" value has j={v[-2]} (shape {tuple(v)})."
        )
    has_heads = len(q) > 3
    h, g = (q[-3], k[-3]) if has_heads else (1, 1)
    if has_heads:
        if v[-3] != g:
            raise RegardError(
                f"key and value must have the same heads: key has {g} (shape {tuple(k)}), value has {v[-3]}"
                f" (shape {tuple(v)})."
            )
        if g != h and (g == 0 or h % g):
            raise RegardError(
                f"query heads must be a multiple of key heads: query has {h} (shape {tuple(q)}), key has {g}"
                f" (shape {tuple(k)})."
            )
    leads = q[: -3 if has_heads else -2], k[: -3 if has_heads else -2], v[: -3 if has_heads else -2]
    lead = leads[0]
    if not leads[0] == leads[1] == leads[2]:
        try:
            lead = torch.broadcast_shapes(*leads)
        except RuntimeError:
            raise RegardError(
                f"leading axes must be equal or one: query is {tuple(q)}, key {tuple(k)}, value {tuple(v)}."
            ) from None
    return Sizes(tuple(lead), h, g, q[-2], k[-2], q[-1], k[-1], v[-1], dtype, device, has_heads)


def as_terms(
    score: Score | Callable[[Tensor, Tensor], Tensor], weigh: Weigh, mask: Mask | Tensor, bias: Bias | Tensor | None
) -> Terms:
    """What a caller gave, as terms: functions and tensors are wrapped."""
    return as_score(score), as_weigh(weigh), as_mask(mask), as_bias(bias)


def as_score(score: Score | Callable[[Tensor, Tensor], Tensor]) -> Score:
    if isinstance(score, Score):
        return score
    if callable(score) and not isinstance(score, type):
        return Custom(score)
    raise RegardError(f"score must be a Score such as Dot() or a function of two tiles, got {describe(score)}.")


def as_weigh(weigh: Weigh) -> Weigh:
    if isinstance(weigh, Weigh):
        return weigh
    raise RegardError(f"weigh must be a weigher such as Softmax(), got {describe(weigh)}.")


def as_mask(mask: Mask | Tensor) -> Mask:
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        return Allowed(mask)
    raise RegardError(f"mask must be a mask such as Causal() or a bool tensor (True = attend), got {describe(mask)}.")


def as_bias(bias: Bias | Tensor | None) -> Bias | None:
    if bias is None or isinstance(bias, Bias):
        return bias
    if isinstance(bias, Tensor):
        return Dense(bias)
    raise RegardError(f"bias must be a bias such as Alibi() or a tensor, got {describe(bias)}.")


def check_call(
    query: Tensor, key: Tensor, value: Tensor, terms: Terms, dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Call:  # fmt: skip
    """The checked call, its terms settled except for what is drawn at random."""
    score, weigh, mask, bias = terms
    sizes = check(query, key, value, score)
    check_terms(sizes, *terms, dropout, generator)
    call = Call(sizes, score, weigh, mask.settle(sizes), None if bias is None else bias.settle(sizes), dropout)
    if torch.is_grad_enabled():
        call = replace(call, needs_grad=any(x.requires_grad for x in (query, key, value, *call.tensors)))
    return call


def check_terms(
    sizes: Sizes, score: Score, weigh: Weigh, mask: Mask, bias: Bias | None, dropout: float, generator: object
) -> None:
    """Raise where a term, dropout or generator cannot serve a call of these sizes."""
    for term in (score, weigh, mask, bias):
        if term is not None and (problem := find_misfit(term, sizes)):
            raise RegardError(problem)
    if (type(dropout) is not float and misfit_kind("dropout", dropout, (float,))) or not 0.0 <= dropout < 1.0:
        raise RegardError(f"dropout must lie in [0, 1), got {describe(dropout)}.")
    if generator is not None and (problem := misfit_kind("generator", generator, (torch.Generator, NoneType))):
        raise RegardError(problem)


def find_misfit(term: Term, sizes: Sizes) -> str | None:
    """The error message of a term that cannot serve a call of these sizes, or None."""
    try:
        return term.find_misfit(sizes)
    except RuntimeError:
        # a nested tensor does not even have a shape; to look for one takes time that a small call does not have
        if any(x.is_nested for x in term.all_tensors):
            name = type(term).__name__
            return f"{name} must hold a dense tensor, got a nested one: pad it (torch.nested.to_padded_tensor)."
        raise


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
