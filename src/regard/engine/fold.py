"""Shapes folded to (b, h, n, d) and back; half precision upcast, and key heads repeated for grouped queries."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from regard.core import Sizes, Term
from regard.engine.call import Call

T = TypeVar("T", bound=Term)


def fold(x: Tensor, sizes: Sizes) -> Tensor:
    """(*lead, h, n, d) as (b, h, n, d); a view where it can be."""
    if x.ndim == 4 and x.shape[0] == sizes.b:
        return x
    if not sizes.has_heads:
        x = x.unsqueeze(-3)
    rest = x.shape[-3:]
    if x.shape[:-3] != sizes.lead:
        x = x.expand(*sizes.lead, *rest)
    return x.reshape(sizes.b, *rest)


def unfold(out: Tensor, sizes: Sizes) -> Tensor:
    """(b, h, n, e) in the caller's own axes."""
    if sizes.has_heads and len(sizes.lead) == 1:
        return out
    return out.reshape(*sizes.pairs[:-1], sizes.e)


def lift(call: Call, query: Tensor, key: Tensor, value: Tensor) -> tuple[Call, Tensor, Tensor, Tensor]:
    """The call upcast to its compute dtype, with a key head for each query head."""
    query, key, value = lift_rows(call, query, key, value)
    call, key, value = lift_terms(call, key, value)
    return call, query, key, value


def lift_rows(call: Call, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value upcast to the call's compute dtype."""
    dtype = call.compute_dtype
    if call.score.keeps_dtype:
        return query, key, value.to(dtype)
    return query.to(dtype), key.to(dtype), value.to(dtype)


def lift_terms(call: Call, key: Tensor, value: Tensor) -> tuple[Call, Tensor, Tensor]:
    """The call with its terms in that dtype, and key and value heads repeated, one for each query head."""
    dtype, sizes = call.compute_dtype, call.sizes
    # after the cast of rows: the gradients of repeated heads are summed in the compute dtype
    repeats = sizes.h // sizes.g if sizes.g else 1
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    bias = None if call.bias is None else _lifted(call.bias, dtype)
    return replace(call, score=_lifted(call.score, dtype), weigh=_lifted(call.weigh, dtype), bias=bias), key, value


def _lifted(term: T, dtype: torch.dtype) -> T:
    tensors = term.tensors
    return term.with_tensors([t.to(dtype) for t in tensors]) if tensors else term
