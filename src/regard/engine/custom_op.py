"""`attend` as one custom operator of torch, so that `torch.compile` does not break its graph at it.

Backends look at numbers before they choose their way (poison.py, `sdpa.errs`, the spans of masks), which no graph can
hold. Within a compiled function the whole call is therefore opaque. Terms travel as a text with places for tensors and
numbers; the gradient does the forward pass once more. `fused` has operators of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError, Term
from regard.engine.run import run_seeded
from regard.score import Custom


class Packed:
    """Terms serialised for an operator: a text, and lists of the tensors and numbers in it."""

    def __init__(self, *terms: Term | None) -> None:
        self.tensors: list[Tensor] = []
        # never empty: torch tells lists of numbers from lists of tensors by what is in them
        self.integers: list[int] = [0]
        self.numbers: list[float] = [0.0]
        # by means that the compiler can follow, which json's are not
        self.text = "[" + ",".join([self._write(term) for term in terms]) + "]"

    def _write(self, value: Any) -> str:
        if value is None:
            return "null"
        if isinstance(value, Term):
            parts = [f'"{field.name}":{self._write(getattr(value, field.name))}' for field in value._fields]
            return '{"' + _name(type(value)) + '":{' + ",".join(parts) + "}}"
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return f'{{"tensor":{len(self.tensors) - 1}}}'
        if isinstance(value, tuple):
            return "[" + ",".join([self._write(x) for x in value]) + "]"
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            self.numbers.append(value)
            return f'{{"number":{len(self.numbers) - 1}}}'
        self.integers.append(value)
        return f'{{"integer":{len(self.integers) - 1}}}'


def can_pack(term: Term | None) -> bool:
    """Whether a term can be serialised: the library's own, without functions or generators in it or its parts."""
    if term is None:
        return True
    if isinstance(term, Custom) or not type(term).__module__.startswith("regard."):
        return False
    for field in term._fields:
        value = getattr(term, field.name)
        if isinstance(value, torch.Generator) or (callable(value) and not isinstance(value, Term | Tensor)):
            return False
        if isinstance(value, Term) and not can_pack(value):
            return False
    return True


def _name(cls: type[Term]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def unpack(text: str, tensors: Sequence[Tensor], integers: Sequence[int], numbers: Sequence[float]) -> tuple[Any, ...]:
    """The terms that were packed.

    >>> from regard.mask import Window
    >>> packed = Packed(Window(2, 0), None)
    >>> unpack(packed.text, packed.tensors, packed.integers, packed.numbers)
    (Window(before=2, after=0), None)
    """
    found = {"tensor": tensors, "integer": integers, "number": numbers}

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(read, value))
        if not isinstance(value, dict):
            return value
        ((name, rest),) = value.items()
        return found[name][rest] if name in found else _find(name)(**{k: read(v) for k, v in rest.items()})

    return tuple(map(read, json.loads(text)))


@lru_cache
def _find(name: str) -> type[Term]:
    """The class of that name, which is there, since a term of it was packed."""
    rest: list[type[Term]] = [Term]
    while _name(rest[-1]) != name:
        cls = rest.pop()
        rest += cls.__subclasses__()
    return rest[-1]


def attend_as_operator(
    query: Tensor, key: Tensor, value: Tensor, terms: Sequence[Term | None], options: dict[str, Any]
) -> Tensor:
    """`attend` of (score, weigh, mask, bias) as one operator; `options` are `dropout`, `seed` and `backend`."""
    packed = Packed(*terms)
    dropout, seed, backend = options["dropout"], options["seed"], options["backend"]
    out: Tensor = _attend(
        query, key, value, packed.tensors, packed.text, packed.integers, packed.numbers, float(dropout), seed, backend
    )
    return out


@torch.library.custom_op("regard::attend", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, tensors: Sequence[Tensor], text: str, integers: Sequence[int],
    numbers: Sequence[float], dropout: float, seed: int, backend: str,
) -> Tensor:  # fmt: skip
    terms = unpack(text, tensors, integers, numbers)
    out = run_seeded(query, key, value, terms, dropout, seed, backend)
    return out.contiguous().clone() if any(out is x for x in (query, key, value)) else out.contiguous()


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, tensors: Sequence[Tensor], text: str, integers: Sequence[int],
    numbers: Sequence[float], dropout: float, seed: int, backend: str,
) -> Tensor:  # fmt: skip
    own = 3 if query.ndim > 3 else 2
    lead = torch.broadcast_shapes(*(x.shape[:-own] for x in (query, key, value)))
    return query.new_empty(*lead, *query.shape[-own:-1], value.shape[-1])


@torch.library.custom_op("regard::attend_back", mutates_args=())
def _attend_back(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, tensors: Sequence[Tensor], text: str,
    integers: Sequence[int], numbers: Sequence[float], dropout: float, seed: int, backend: str,
) -> list[Tensor]:  # fmt: skip
    learns = [x.is_floating_point() for x in tensors]
    # an operator's inside is hidden from autograd, which is wanted here
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False), torch.enable_grad():
        rows = query, key, value = [x.detach().requires_grad_() for x in (query, key, value)]
        held = [x.detach().requires_grad_(yes) for x, yes in zip(tensors, learns, strict=True)]
        terms = unpack(text, held, integers, numbers)
        out = run_seeded(query, key, value, terms, dropout, seed, backend, is_told=False)
        leaves = [*rows, *(x for x, yes in zip(held, learns, strict=True) if yes)]
        grads = torch.autograd.grad(out, leaves, grad, allow_unused=True, materialize_grads=True)
    learned = iter(grads[3:])
    rest = [next(learned) if yes else x.new_empty(0) for x, yes in zip(tensors, learns, strict=True)]
    return [x.clone(memory_format=torch.contiguous_format) for x in (*grads[:3], *rest)]


@_attend_back.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, tensors: Sequence[Tensor], text: str,
    integers: Sequence[int], numbers: Sequence[float], dropout: float, seed: int, backend: str,
) -> list[Tensor]:  # fmt: skip
    rest = [x.new_empty(x.shape if x.is_floating_point() else (0,)) for x in tensors]
    return [*(x.new_empty(x.shape) for x in (query, key, value)), *rest]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query, key, value, tensors, *rest = inputs
    ctx.rest = rest
    ctx.save_for_backward(query, key, value, *tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    query, key, value, *tensors = ctx.saved_tensors
    dquery, dkey, dvalue, *rest = _attend_back(grad, query, key, value, tensors, *ctx.rest)
    learned = [d if x.is_floating_point() else None for d, x in zip(rest, tensors, strict=True)]
    return dquery, dkey, dvalue, learned, *(None,) * 6


def _refuse_twice(ctx: Any, *grads: Any) -> None:
    raise RegardError("attend has no second derivative within torch.compile: differentiate twice outside of it.")


_attend.register_autograd(_backward, setup_context=_save)
_attend_back.register_autograd(_refuse_twice, setup_context=lambda ctx, inputs, output: None)
