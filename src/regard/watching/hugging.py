"""Models of Hugging Face, through the attention interface that transformers documents.

A function of our own is registered under a name of our own, beside the mask function of the implementation in use; the
model is switched to it and back. It calls the original for the output and looks at what that was given.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.watching.names import BELOW, LOCK, Name, find_base, register, restore
from regard.watching.own import list_methods, mentions
from regard.watching.record import Recorder
from regard.watching.terms import read_call

_OLDEST = (5, 3)
_COUNT = itertools.count(1)
_INTERFACE = frozenset({"ALL_ATTENTION_FUNCTIONS"})
_OTHER_STATES = "key_value_states", "encoder_hidden_states"


def find_hosts(model: nn.Module) -> list[Any]:
    """The Hugging Face models in a module, those within others aside."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        # nobody can have made one
        return []
    found: list[Any] = []
    inner: set[int] = set()
    for module in model.modules():
        if isinstance(module, library.PreTrainedModel) and id(module) not in inner:
            found.append(module)
            inner |= {id(part) for part in module.modules()}
    return found


def calls_interface(module: nn.Module) -> bool:
    """Whether a module is an attention that goes through the interface."""
    library = sys.modules["transformers.modeling_utils"]
    return not isinstance(module, library.PreTrainedModel) and mentions(type(module), _INTERFACE)


@contextmanager
def switch(models: Sequence[Any], names: Mapping[int, str], recorder: Recorder) -> Iterator[None]:
    """Record every attention of Hugging Face models, which may share configs; restores them afterwards."""
    import transformers

    version = tuple(int(part) for part in transformers.__version__.split(".")[:2] if part.isdigit())
    if version < _OLDEST:
        raise RegardError(
            f"watch needs transformers 5.3 or newer, got {transformers.__version__[:20]}: pip install -U transformers."
        )
    cross: dict[int, bool] = {}
    handles: list[Any] = []
    ours: dict[str, Name] = {}
    configs = list({id(config): config for model in models for config in _list_configs(model)}.values())
    before: list[Any] = []
    watching = threading.Event()
    watching.set()
    try:
        with LOCK:
            before += [config._attn_implementation for config in configs]
            for model in models:
                _refuse(model, {config._attn_implementation for config in _list_configs(model)})
                handles += [
                    module.register_forward_pre_hook(_find_kind(cross), with_kwargs=True)
                    for module in model.modules()
                    if calls_interface(module) and _has_other_states(module)
                ]
            number = next(_COUNT)
            ours = {kind: Name(f"regard_watch_{number}_{find_base(kind)}") for kind in set(before)}
            # of all of them before any is set: they may have parts in common
            nested = [_nest(model.config, ours) for model in models]
            for kind, name in ours.items():
                register(kind, name, _wrap(kind, name, names, recorder, cross, watching))
            for model, nest in zip(models, nested, strict=True):
                _set(model, nest, ours)
            for config, kind in zip(configs, before, strict=True):
                config._attn_implementation_internal = ours[kind]
        yield
    finally:
        watching.clear()
        for handle in handles:
            handle.remove()
        with LOCK:
            restore(configs, before, ours)


def _set(model: Any, nest: dict[str, Any], ours: Mapping[str, str]) -> None:
    # checks that the model can; what it cannot know of, such as copies of a config, is set one by one
    model.set_attn_implementation(nest)
    unset = [config for config in _list_configs(model) if config._attn_implementation in ours]
    for module in model.modules():
        if any(getattr(module, "config", None) is config for config in unset) and hasattr(module, "can_generate"):
            raise RegardError(_tell_old(module))


def _wrap(
    kind: str, ours: str, names: Mapping[int, str], recorder: Recorder, cross: Mapping[int, bool],
    watching: threading.Event,
) -> Callable[..., Any]:  # fmt: skip
    """The function that is registered: the original, and a look."""
    base = find_base(kind)

    def attend_watched(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, *args: Any, **options: Any
    ) -> Any:
        original = find_original(module, BELOW.get(ours, base))
        result = original(module, query, key, value, attention_mask, *args, **options)
        name = names.get(id(module))
        # a module of another model that shares its config
        if name is None or not watching.is_set():
            return result
        label = "cross" if cross.get(id(module)) or getattr(module, "is_cross_attention", False) else "self"
        wants = recorder.wants(name)
        if not wants and (label == "cross" or not getattr(module.config, "is_encoder_decoder", False)):
            # of the others, the recorder follows those that say whether a decoder went on
            return result
        if args:
            recorder.skip(name, "it was given arguments without names")
            return result

        def see() -> None:
            eager = find_original(module, "eager") if base == "eager" else None
            found = read_call(base, module, query, key, value, attention_mask, options, eager)
            if isinstance(found, str):
                recorder.skip(name, found)
                return
            out = result[0].detach().transpose(1, 2) if result[0].ndim == 4 else result[0].detach()
            recorder.take(name, label, *found, out)

        with torch.no_grad():
            reason = recorder.guard(name, see)
            if reason is not None:
                recorder.skip(name, reason)
        return result

    # a graph breaks here rather than leave the look out
    watched: Callable[..., Any] = torch.compiler.disable(attend_watched)
    return watched


def find_original(module: nn.Module, kind: str) -> Callable[..., Any]:
    """The attention function that a module's own file would have called."""
    for function in list_methods(type(module)):
        if "ALL_ATTENTION_FUNCTIONS" not in function.__code__.co_names:
            continue
        known = function.__globals__
        # a file may have several eager functions: the one that this method speaks of
        eager = [x for x in function.__code__.co_names if "eager" in x and inspect.isfunction(known.get(x))]
        default = known[eager[0]] if eager else None
        if kind == "eager" and default is None:
            continue
        found: Callable[..., Any] = known["ALL_ATTENTION_FUNCTIONS"].get_interface(kind, default)
        return found
    raise RegardError(f"watch cannot find the {kind} function of {type(module).__name__[:40]}: it names none.")


def _refuse(model: Any, kinds: set[Any]) -> None:
    """Raise for what would not run as before under a name of our own."""
    called = type(model).__name__[:40]
    for kind in kinds:
        base = find_base(kind)
        if not isinstance(base, str) or "/" in base:
            raise RegardError(f"watch does not run kernels of a hub, {called} has {str(base)[:40]!r}: {_FIX}.")
        if base not in ("sdpa", "eager"):
            raise RegardError(f"watch knows sdpa and eager, {called} has {base[:40]!r}: {_FIX}.")
    if not any(calls_interface(module) for module in model.modules()):
        raise RegardError(_tell_old(model))
    for module in model.modules():
        if not _compares(type(module)):
            continue
        if hasattr(module, "reorder_and_upcast_attn"):
            # the one thing that it does for eager alone
            config = getattr(module, "config", None)
            base = find_base(config._attn_implementation) if config else None
            if not module.reorder_and_upcast_attn or base == "sdpa":
                continue
        raise RegardError(
            f"watch would change {type(module).__name__[:40]}, which decides by the name of its attention: it cannot be"
            " watched."
        )


_FIX = "model.set_attn_implementation('sdpa') first"


def _tell_old(model: Any) -> str:
    return (
        f"{type(model).__name__[:40]} does not use the attention interface of transformers, so watch cannot see it:"
        " use a newer transformers or model."
    )


def _compares(cls: type) -> bool:
    """Whether a class compares the name of the implementation with those it knows."""
    for function in list_methods(cls):
        # what the library itself, and generation, ask of a model is not its arithmetic
        is_model = function.__module__.rpartition(".")[2].startswith("modeling_") and function.__name__ != "__init__"
        is_model = is_model and function.__module__ != "transformers.modeling_utils"
        if is_model and "_attn_implementation" in function.__code__.co_names:
            texts = set(_list_texts(function.__code__))
            if texts & {"eager", "sdpa"}:
                return True
    return False


def _list_texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        for part in constant if isinstance(constant, tuple | frozenset) else (constant,):
            if isinstance(part, str):
                yield part


def _list_configs(model: Any) -> list[Any]:
    """All configs that decide on an attention: of the model, of its parts, and of those configs' own parts."""
    found: dict[int, Any] = {}
    rest = [model.config, *(getattr(module, "config", None) for module in model.modules())]
    while rest:
        config = rest.pop(0)
        if id(config) in found or not hasattr(config, "_attn_implementation"):
            continue
        found[id(config)] = config
        rest += [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
    # of a part that the model does not have, nothing was decided
    return [config for config in found.values() if config._attn_implementation is not None]


def _nest(config: Any, ours: Mapping[Any, str]) -> dict[str, Any]:
    """The names to switch to, as `set_attn_implementation` takes them."""
    nested: dict[str, Any] = {"": ours[config._attn_implementation]}
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if part is not None and part._attn_implementation is not None:
            nested[name] = _nest(part, ours)
    return nested


def _has_other_states(module: nn.Module) -> bool:
    return any(name in inspect.signature(module.forward).parameters for name in _OTHER_STATES)


def _find_kind(cross: dict[int, bool]) -> Callable[..., None]:
    """A hook that sees whether a module is handed the states of another."""

    def see(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        parameters = list(inspect.signature(module.forward).parameters)
        given = dict(zip(parameters, args, strict=False)) | options
        cross[id(module)] = any(given.get(name) is not None for name in _OTHER_STATES)

    return see
