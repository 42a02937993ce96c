"""The arguments of a Hugging Face attention as terms of `attend`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.bias import Dense
from regard.core import Mask, RegardError
from regard.engine.call import Call
from regard.engine.check import check
from regard.mask import Allowed, Causal, Full
from regard.score import Dot
from regard.weigh import Softmax

# what an eager function may be given by name; what else it asks for could mean anything
_KNOWN = {
    "module", "query", "key", "value", "attention_mask", "scaling", "dropout", "softcap", "position_bias", "s_aux",
}  # fmt: skip


@dataclass(frozen=True)
class _Given:
    """A mask as it was read: who may be seen, what is added, and rows that are uniform since all of them is lowest."""

    allowed: Tensor | None = None
    added: Tensor | None = None
    even: Tensor | None = None


def read_call(
    base: str, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, options: Mapping[str, Any],
    eager: Callable[..., Any] | None,
) -> tuple[Call, Tensor, Tensor, Tensor] | str:  # fmt: skip
    """The call that sdpa or eager makes of these, or why it cannot be told."""
    if not all(isinstance(x, Tensor) and x.ndim == 4 for x in (query, key, value)):
        return "query, key and value do not have four axes"
    if mask is not None and not isinstance(mask, Tensor):
        return f"its mask is a {type(mask).__name__}"
    uses = _list_uses(eager, options) if eager is not None else {"position_bias"}
    if isinstance(uses, str):
        return uses
    if eager is None and options.get("cache") is not None:
        return "its cache is paged"
    scaling = options.get("scaling")
    if isinstance(scaling, Tensor):
        if scaling.numel() != 1:
            return "it scales scores by a tensor"
        scaling = float(scaling)
    cap = options.get("softcap") if "softcap" in uses else None
    place = options.get("position_bias") if "position_bias" in uses else None
    sink = options.get("s_aux") if "s_aux" in uses else None
    dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
    query, key, value = query.detach().to(dtype), key.detach().to(dtype), value.detach().to(dtype)
    n, m = query.shape[2], key.shape[2]

    said = options.get("is_causal")
    is_causal = bool(said if said is not None else getattr(module, "is_causal", True))
    hides_ahead = eager is None and n > 1 and mask is None and is_causal
    if mask is not None and mask.dtype == torch.bool and eager is not None:
        return "a bool mask is added to its scores as ones and zeros"
    given = _Given() if mask is None else _read_mask(mask, with_bias=place is not None)
    if isinstance(place, Tensor) and not bool(place.any()):
        # cross-attention of T5 has one of zeros
        place = None
    # room of a static cache that nothing was written to yet
    if m > n and (hides_ahead or is_causal):
        m = n if hides_ahead else max(n, _find_end(given, m))
        key, value = key[:, :, :m], value[:, :, :m]
        given = _Given(*(_cut(x, m) for x in (given.allowed, given.added, given.even)))
        place = _cut(place, m)
    # torch's flag aligns the first query with the first key
    allowed = given.allowed if given.allowed is None or given.even is None else given.allowed | given.even
    see: Mask = (Causal() if n == m else Causal(0)) if hides_ahead else simplify(allowed, n, m)
    added = _add(place, given, torch.float64 if dtype == torch.float64 else torch.float32)
    score = Dot(None if scaling is None else float(scaling), cap)
    weigh = Softmax() if sink is None else Softmax(sink.detach().flatten())
    rate = float(options.get("dropout") or 0.0)
    try:
        sizes = check(query, key, value, score)
    except RegardError as error:
        return str(error)
    bias = None if added is None else Dense(added)
    # eager drops in training alone, sdpa whenever it is told to
    dropout = rate if eager is None or module.training else 0.0
    return Call(sizes, score, weigh, see, bias, dropout), query, key, value


def _list_uses(eager: Callable[..., Any], options: Mapping[str, Any]) -> set[str] | str:
    """Which of the options an eager function takes part in, or why that cannot be told."""
    eager = inspect.unwrap(eager)
    parameters = inspect.signature(eager).parameters
    named = {name for name, p in parameters.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
    for name in sorted(named - _KNOWN):
        if options.get(name) is not None:
            return f"its eager function takes {name}"
    # sinks are also read from the module itself
    code = getattr(eager, "__code__", None)
    return named | ({"s_aux"} if code is not None and "sinks" in code.co_names else set())


def _read_mask(mask: Tensor, with_bias: bool) -> _Given:
    mask = mask.detach()
    if mask.dtype == torch.bool:
        # beside a bias it becomes the lowest number, and a row of nothing else is uniform; alone such a row is zero
        return _Given(mask, None, _find_even(~mask)) if with_bias else _Given(mask)
    low = mask <= torch.finfo(mask.dtype).min
    rest = mask.masked_fill(low, 0.0)
    return _Given(~low, rest if bool(rest.any()) else None, _find_even(low))


def _find_even(low: Tensor) -> Tensor | None:
    even = low.all(-1, keepdim=True)
    return even if bool(even.any()) else None


def _find_end(given: _Given, m: int) -> int:
    """The keys up to the last that anyone may see."""
    if given.allowed is None or given.allowed.shape[-1] != m:
        return m
    used = given.allowed.flatten(0, -2).any(0).nonzero()
    return int(used[-1]) + 1 if len(used) else m


def _cut(x: Tensor | None, m: int) -> Tensor | None:
    return x if x is None or x.shape[-1] == 1 else x[..., :m]


def simplify(allowed: Tensor | None, n: int, m: int) -> Mask:
    """The mask of a tensor that broadcasts to (batch, heads, n, m), by its own name where it has one."""
    if allowed is None or bool(allowed.all()):
        return Full()
    if n > 1 and allowed.shape[-2:] == (n, m):
        past = torch.ones(n, m, dtype=torch.bool, device=allowed.device).tril(m - n)
        if bool((allowed == past).all()):
            return Causal()
    return Allowed(allowed)


def _add(place: Tensor | None, given: _Given, dtype: torch.dtype) -> Tensor | None:
    """Everything that is added to the scores."""
    added = None
    for part in (place, given.added):
        if part is not None:
            added = part.detach().to(dtype) if added is None else added + part.to(dtype)
    if given.even is not None:
        lowest = given.even.to(dtype) * torch.finfo(dtype).min
        added = lowest if added is None else torch.where(given.even, lowest, added)
    return added
