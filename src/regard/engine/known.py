"""Calls planned before: what follows from kinds, shapes and terms is found once, and kept for the next call.

Two calls are of one kind where nothing differs but the numbers in their tensors. Their check, their plan and all that a
backend makes of them are the same. Numbers that a check reads, as lengths, are read again where they are others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from regard.core import Mask, RegardError, Term
from regard.engine.call import Call, is_capturing
from regard.engine.check import Terms, as_bias, as_mask, find_misfit
from regard.engine.plan import Plan

T = TypeVar("T", bound=Term)
Kind = tuple[Any, ...]
# kinds kept at a time: a cache that grows by a token makes a new one at each step
MOST = 1024
_known: dict[Kind, Known] = {}
# where a tensor's numbers do not change without its count of changes: others can change what lies on the CPU
COUNTING = frozenset({"cuda"})
_PLAIN = frozenset((int, float, bool, str, type(None)))


class Known:
    """The plan of a kind of call, and the mask that its last call had; tensors of callers are not kept alive."""

    def __init__(self, plan: Plan, terms: Terms, is_folded: bool) -> None:
        call, (score, weigh, mask, bias) = plan.call, terms
        # whether the rows, and the mask's numbers, are all that can be another the next time
        self.is_fixed = is_folded and not any(term is not None and term.tensors for term in (score, weigh, bias))
        # what the first call kept holds its own tensors
        kept = {"is_fixed": self.is_fixed}
        call = replace(call, score=_empty(call.score), weigh=_empty(call.weigh), kept=kept)
        if mask.all_tensors:
            call = replace(call, mask=_empty(call.mask))
        # what a bias made by itself stays
        if call.bias is not None and bias is not None and bias.tensors:
            call = replace(call, bias=_empty(call.bias))
        if plan.by_name:
            call = replace(call, by_name=True)
        self.plan = replace(plan, call=call)
        self.learns = bool(plan.call.tensors)
        # the mask settled, and what tells that it is the same
        self.held: tuple[Mask, tuple[tuple[weakref.ref[Tensor], int, int], ...]] | None = None

    def find_again(self, numbers: list[Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
        """All of the call, where a backend kept it with its mask, and nothing but its rows is another."""
        if not self.is_fixed:
            return None
        if numbers and is_capturing():
            # a graph reads the mask's numbers each time it is replayed
            return None
        kept: tuple[Mask, Callable[[Tensor, Tensor, Tensor], Tensor]] | None = self.plan.call.kept.get("again")
        if kept is None or (numbers and self._recall_mask(numbers) is not kept[0]):
            return None
        return kept[1]

    def renew(self, score: Any, weigh: Any, mask: Any, bias: Any, numbers: list[Tensor]) -> Call:
        """The call with the tensors that the terms hold this time; `numbers` are those of the mask."""
        call, sizes = self.plan.call, self.plan.call.sizes
        if not numbers and not self.learns:
            return call
        mask = self._settle(mask, numbers) if numbers else call.mask
        given = as_bias(bias)
        # what a bias makes by itself for these sizes, as slopes, is made
        bias = given.settle(sizes) if given is not None and given.tensors else call.bias
        return call.change_terms(score=score, weigh=weigh, mask=mask, bias=bias)

    def _recall_mask(self, numbers: list[Tensor]) -> Mask | None:
        """The mask of the last call, where its tensors are those of this one, and have their numbers still."""
        # read once: another thread may set it
        held = self.held
        if held is None:
            return None
        for (ref, version, at), x in zip(held[1], numbers, strict=True):
            if ref() is not x or version != x._version or at != x.data_ptr():
                return None
        return held[0]

    def _settle(self, mask: Mask | Tensor, numbers: list[Tensor]) -> Mask:
        """The mask settled; the same as last time, with all that was kept with it, where its tensors are."""
        if known := self._recall_mask(numbers):
            return known
        sizes = self.plan.call.sizes
        mask = as_mask(mask)
        if problem := find_misfit(mask, sizes):
            raise RegardError(problem)
        # of other tensors with the same numbers: those of the caller may then be seen to go
        settled = mask.with_all_tensors([x.detach() for x in mask.all_tensors]).settle(sizes)
        # what a graph is captured of is made within the graph
        if not is_capturing():
            self.held = settled, tuple((weakref.ref(x, self._forget), x._version, x.data_ptr()) for x in numbers)
        return settled

    def _forget(self, _: object) -> None:
        """Let go of a mask, and of what was made of it, when nobody else has its tensors."""
        self.held = None
        for name in ("marks", "again"):
            self.plan.call.kept.pop(name, None)


def _empty(term: T) -> T:
    """The term with empty tensors."""
    tensors = term.all_tensors
    return term.with_all_tensors([x.new_empty(0) for x in tensors]) if tensors else term


def read_kind(
    query: Tensor, key: Tensor, value: Tensor, terms: tuple[Any, ...], dropout: float, backend: str,
    numbers: list[Tensor],
) -> Kind | None:  # fmt: skip
    """What plans are kept by, or None where a call has to be looked at as a whole; `numbers` gets the mask's tensors.

    Functions have an inside that no kind tells, tensors of other classes may do anything; under transforms, and where a
    compiler or somebody else looks on, nothing is left out.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return None
    if type(dropout) is not float or type(backend) is not str:
        return None
    kind: list[Any] = [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), dropout, backend]
    for rows in (query, key, value):
        described = _describe(rows)
        if described is None:
            return None
        kind.append(described)
    device = query.device.type
    kind.append(torch.is_autocast_enabled(device))
    score, weigh, mask, bias = terms
    for term, tensors in ((score, None), (weigh, None), (bias, None), (mask, numbers)):
        # most are known by what was read of them once
        known = None if term is None or not isinstance(term, Term) else term.__dict__.get("_kind")
        if known is not None:
            kind.append(known)
        elif not _read(term, kind, tensors):
            return None
    if numbers and (device not in COUNTING or any(x.is_inference() for x in numbers)):
        # tensors of inference mode do not count their changes
        return None
    return tuple(kind)


def _describe(x: Tensor) -> tuple[Any, ...] | None:
    """All of a tensor but its numbers, or None where there is more to it."""
    cls = type(x)
    if (cls is not Tensor and cls is not nn.Parameter) or x.layout is not torch.strided or x.is_nested:
        return None
    device = x.device
    if device.type == "meta" or x.is_neg():
        return None
    return x.dtype, device, x.shape, x.stride(), x.data_ptr() % 16 == 0, x.requires_grad


def _read(value: Any, kind: list[Any], tensors: list[Tensor] | None = None) -> bool:
    """Add what a plan reads of a value, and say whether that is all there is to it."""
    cls = type(value)
    if cls in _PLAIN:
        kind.append((cls, value))
        return True
    if isinstance(value, Term):
        # of a term without tensors it is always the same
        known = value.__dict__.get("_kind")
        if known is None:
            if not cls.__module__.startswith("regard."):
                return False
            own: list[Any] = [cls]
            parts = [getattr(value, field.name) for field in value._fields]
            if not all([_read(part, own, tensors) for part in parts]):
                return False
            known = tuple(own)
            # looked for here first: to list them takes longer
            if not any([isinstance(part, Tensor) for part in parts]) and not value.all_tensors:
                value.__dict__["_kind"] = known
        kind.append(known)
        return True
    described = _describe(value) if isinstance(value, Tensor) else None
    if described is None:
        return False
    kind.append(described)
    if tensors is not None:
        tensors.append(value)
    return True


def recall(kind: Kind) -> Known | None:
    """What is kept of a kind of call."""
    return _known.get(kind)


def keep(kind: Kind, plan: Plan, terms: Terms, *rows: Tensor) -> None:
    """Keep the plan for the next call of its kind; query, key and value tell whether they come folded."""
    if len(_known) >= MOST:
        _known.clear()
    sizes = plan.call.sizes
    _known[kind] = Known(plan, terms, sizes.has_heads and all(x.ndim == 4 and x.shape[0] == sizes.b for x in rows))
