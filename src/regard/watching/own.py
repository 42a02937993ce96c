"""Models whose layers call `attend`: its calls, named by the module that was running."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from regard.engine.attend import attend
from regard.engine.call import Call
from regard.engine.run import OBSERVERS
from regard.watching.record import Recorder


@contextmanager
def observe(names: Mapping[int, str], recorder: Recorder) -> Iterator[None]:
    """Record every call of `attend`; `names` has those of the model's modules, by id.

    Calls within modules of other models are not recorded, and calls outside of all modules are called "attend".
    """
    running, here = recorder.running, threading.get_ident()

    def enter(module: nn.Module, args: Any) -> None:
        # torch shows such a hook no keywords: they are its caller's
        options = {} if torch.compiler.is_compiling() else sys._getframe(1).f_locals.get("kwargs", {})
        # graphs that a compiler made run as modules of nobody
        if not isinstance(module, GraphModule) or id(module) in names:
            running.enter(module, args, options)

    def leave(module: nn.Module, args: Any, out: Any) -> None:
        running.leave(module)

    def tell(call: Call, query: Tensor, key: Tensor, value: Tensor, out: Tensor) -> None:
        if not running.stack and threading.get_ident() == here:
            kind = "self" if query.shape[-2] == key.shape[-2] else "cross"
            recorder.take("attend", kind, call, query, key, value, out)
        for module, args, options, _ in reversed(running.stack):
            if id(module) in names:
                kind = _find_kind(module, args, options, query.shape[-2], key.shape[-2])
                recorder.take(names[id(module)], kind, call, query, key, value, out)
                return

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    observer = _apart(tell)
    OBSERVERS.append(observer)
    try:
        yield
    finally:
        OBSERVERS.remove(observer)
        for handle in handles:
            handle.remove()


def _apart(tell: Callable[..., None]) -> Callable[..., None]:
    """`tell`, which no compiler follows."""

    def call(*args: Any) -> None:
        if torch.compiler.is_compiling():
            torch.compiler.disable(tell)(*args)
        else:
            tell(*args)

    return call


def _find_kind(module: nn.Module, args: tuple[Any, ...], options: Mapping[str, Any], n: int, m: int) -> str:
    """Whether a module attends to its own rows or to others, by what it was called with, else by their numbers."""
    parameters = list(inspect.signature(module.forward).parameters)
    at = next((parameters.index(name) for name in ("keys", "key") if name in parameters), 0)
    if at:
        given = {**dict(zip(parameters, args, strict=False)), **options}
        if parameters[at] in given:
            return "self" if given[parameters[at]] is given.get(parameters[0]) else "cross"
        return "self" if n == m else "cross"
    rows = [x for x in args if isinstance(x, Tensor) and x.is_floating_point()]
    if rows and rows[0] is args[0]:
        # with a cache there are more keys than rows; rows as many as the keys, beside the queries', are a memory
        others = any(m in x.shape[:-1] for x in rows[1:]) and m not in rows[0].shape[:-1]
        return "cross" if others else "self"
    return "self" if n == m else "cross"


def calls_attend(module: nn.Module) -> bool:
    """Whether a method of the module's class speaks of `attend`."""
    return mentions(type(module), frozenset({"attend", "_attend"}))


def may_attend(module: nn.Module) -> bool:
    """Whether the file of the module's class knows `attend`, so that a function in it may call it."""
    if calls_attend(module):
        return True
    for function in list_methods(type(module)):
        known = function.__globals__
        if any(x is attend for x in known.values()):
            return True
    return False


def mentions(cls: type, names: frozenset[str]) -> bool:
    """Whether a method of a class, or of one that it is made of, uses one of these names."""
    return any(names & set(_list_names(function.__code__)) for function in list_methods(cls))


def list_methods(cls: type) -> list[Any]:
    """The functions of a class and of those that it is made of, torch's own aside."""
    return _list_methods(cls)


@lru_cache(maxsize=1024)
def _list_methods(cls: type) -> list[Any]:
    found = []
    for part in cls.__mro__:
        if part.__module__.split(".")[0] in ("torch", "builtins", "typing", "abc"):
            continue
        for value in vars(part).values():
            value = inspect.unwrap(value) if callable(value) else value
            value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if inspect.isfunction(value):
                found.append(value)
    return found


def _list_names(code: CodeType) -> Iterator[str]:
    """The names that a function uses, and the functions within it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _list_names(part)
