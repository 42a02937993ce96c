"""The context manager: looks at every attention that a model runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from regard.core import RegardError
from regard.engine.look import look
from regard.watching import hugging, native, own
from regard.watching.record import Options, Recorder, choose
from regard.watching.seen import Seen


@contextmanager
def watch(
    model: nn.Module,
    layers: Sequence[int | str] | int | str | None = None,
    top: int = 16,
    rows: Sequence[int] = (),
    map: int = 256,
    window: int = 8,
    keep: bool = False,
) -> Iterator[Seen]:
    """Look at every attention that a model runs within the block, by module name; no bit of its outputs changes.

    >>> import torch
    >>> from regard.layers import SelfAttention
    >>> model = torch.nn.Sequential(SelfAttention(8, 2), SelfAttention(8, 2))
    >>> with watch(model, top=2) as seen:
    ...     out = model(torch.ones(1, 5, 8))
    >>> list(seen), seen["0"].top_keys.shape
    (['0', '1'], torch.Size([1, 2, 5, 2]))

    For models whose layers call `regard.attend`, for `nn.MultiheadAttention` and what is built of it, its fast path
    included, and for models of Hugging Face (transformers 5.3 or newer) through their attention interface, where sdpa
    or eager is set. `layers` chooses by number, in module order, by name or by
    pattern ("encoder.*"). `top`, `rows`, `map`, `window` and `keep` are those of `look`; rows that a call does not
    have are left out. A model that is itself one attention goes by its class's name. What goes wrong in a look never
    stops the model: `skipped` says what it was, and a warning at the end. Watches of one model may be within each other
    or end in any order, also in several threads: each sees all calls while it lasts. A copy of the model that is made
    within the block is not watched.
    """
    if not isinstance(model, nn.Module):
        raise RegardError(f"watch model must be a torch.nn.Module, got {type(model).__name__}.")
    names: dict[int, str] = {}
    attentions = []
    hosts = hugging.find_hosts(model)
    for name, module in model.named_modules():
        _refuse_compiled(name, module)
        names[id(module)] = name or type(module).__name__
        if own.calls_attend(module) or native.attends(module) or (hosts and hugging.calls_interface(module)):
            attentions.append(names[id(module)])
    if not hosts and not attentions and not any(own.may_attend(module) for module in model.modules()):
        raise RegardError(
            f"watch cannot see into {type(model).__name__[:40]}: no layer calls regard.attend or is an"
            " nn.MultiheadAttention, and it is not a Hugging Face model. Weights of its own are for"
            " views.page(weights, tokens)."
        )
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise RegardError(f"watch rows must be several whole numbers, as in (0, -1), got {type(rows).__name__}.")
    rows = tuple(rows)
    for row in rows:
        if isinstance(row, bool) or not isinstance(row, int):
            raise RegardError(f"watch rows must be whole numbers, got {type(row).__name__}.")
    # what look complains about, it does before the model runs
    look(torch.zeros(1, 1), torch.zeros(1, 1), top=top, map=map, window=window)
    seen = Seen(type(model).__name__, map)
    wants = choose(layers, attentions, list(names.values()))
    recorder = Recorder(seen, Options(top, rows, map, window, keep), wants, names.values())
    with ExitStack() as stack:
        if hosts:
            stack.enter_context(hugging.switch(hosts, names, recorder))
        if any(native.attends(module) for module in model.modules()):
            # before what ends the run of a module
            stack.enter_context(native.observe(names, recorder))
        stack.enter_context(own.observe(names, recorder))
        yield seen
    if recorder.faults:
        name, reason = next(iter(recorder.faults.items()))
        warnings.warn(
            f"watch: {len(recorder.faults)} attentions could not be looked at or checked, {name} first: {reason}.",
            stacklevel=3,
        )
    off = [name for name, check in seen.checks.items() if name in seen and not check.holds]
    if off:
        warnings.warn(
            f"watch: {len(off)} of {len(seen)} looks do not explain their layer's output, {off[0]} first:"
            f" {seen.checks[off[0]].text()}.",
            stacklevel=3,
        )


def _refuse_compiled(name: str, module: nn.Module) -> None:
    # in place by module.compile(), or wrapped by torch.compile(module)
    is_wrapped = type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")
    if is_wrapped or getattr(module, "_compiled_call_impl", None) is not None:
        where = f"module {name[-40:]!r}" if name else "the model"
        raise RegardError(f"watch cannot see into compiled code: {where} is compiled. Watch it before torch.compile.")
