"""Looks saved to a file: safetensors, with names and texts as JSON in its metadata."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.core.errors import plain
from regard.core.files import write_whole
from regard.engine.look import Look

FORMAT = "regard.seen.1"
_KEPT = "query", "key", "logsumexp", "spans"
_TENSORS = tuple(field.name for field in fields(Look) if field.name not in ("terms", "why"))
# what version 0.1.0 called it in its files
_EARLIER = {"logsumexp": "stat"}
_DTYPES = {"top_keys": (torch.int64,), "chosen": (torch.int64,), "spans": (torch.int32,)}
# the fewest that each can have
_AXES = {"entropy": 1, "received": 1, "top_keys": 2, "map": 2, "query": 2, "key": 2}


def write_looks(path: str | os.PathLike[str], said: dict[str, Any], looks: Iterable[Look]) -> None:
    """Write looks to one file, atomically; `said` is what the metadata says of each."""
    safetensors = _need()
    path = _find(path)
    if path.is_dir():
        raise RegardError(f"{_short(path)} is a folder: seen.save(…) needs the name of a file.")
    tensors: dict[str, Tensor] = {}
    for number, look in enumerate(looks):
        for field in _TENSORS:
            if isinstance(x := getattr(look, field), Tensor):
                tensors[f"{number}.{field}"] = x.detach().cpu().contiguous().clone()
    text = json.dumps(said, ensure_ascii=True, allow_nan=True)
    content = safetensors.save(tensors, {"format": FORMAT, "seen": text})
    try:
        write_whole(path, content)
    except OSError as error:
        cause = plain(error.strerror or type(error).__name__)[:40]
        raise RegardError(
            f"{_short(path)} cannot be written ({cause}): seen.save(…) needs a folder that it may use."
        ) from None


def read_looks(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Look]]:
    """The metadata and the looks of a file; types and sizes of everything are checked."""
    _need()
    from safetensors import SafetensorError, safe_open

    path = _find(path)
    if not path.is_file():
        raise RegardError(f"{_short(path)} is not there: seen.save(…) writes such a file.")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            head = file.metadata() or {}
            names = set(file.keys())
            if head.get("format") != FORMAT:
                raise RegardError(f"{_short(path)} is not a file of seen.save(…): its head does not say {FORMAT!r}.")
            said = json.loads(head.get("seen", ""))
            _check_head(said)
            looks = []
            for number, entry in enumerate(said["entries"]):
                called = {field: f"{number}.{field}" for field in _TENSORS}
                called |= {field: old for field, name in _EARLIER.items() if (old := f"{number}.{name}") in names}
                called = {field: name for field, name in called.items() if name in names}
                found = {field: file.get_tensor(name) for field, name in called.items()}
                names -= set(called.values())
                _check_look(found)
                looks.append(Look(**found, terms=entry["terms"], why=entry["why"]))
            if names:
                raise ValueError(f"nothing is said of {min(names)[:20]}")
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        if isinstance(error, RegardError):
            raise
        cause = str(error).splitlines()[0][:60] if str(error) else type(error).__name__
        raise RegardError(f"{_short(path)} is damaged ({plain(cause)}): write it again with seen.save(…).") from None
    return said, looks


def _check_head(said: Any) -> None:
    """Raise unless what is said is of looks."""
    _need_kinds(said, {"model": str, "cells": int, "entries": list, "skipped": dict})
    if said["cells"] < 1:
        raise ValueError("cells must be at least 1")
    names = set()
    for entry in said["entries"]:
        texts = dict.fromkeys(("name", "module", "kind", "terms", "why"), str)
        _need_kinds(entry, texts | {"step": bool, "check": dict})
        numbers = {
            "rows": int,
            "error": float,
            "rounding": float,
            "dtype": str,
            "why": str,
            "shown": float,
            "worst": str,
        }
        _need_kinds(entry["check"], numbers)
        if entry["kind"] not in ("self", "cross") or entry["name"] in names or entry["check"]["rows"] < 0:
            raise ValueError("an entry is not as it should be")
        names.add(entry["name"])
    if not all(isinstance(reason, str) for reason in said["skipped"].values()):
        raise ValueError("a reason must be a text")


def _need_kinds(said: Any, kinds: dict[str, type]) -> None:
    if not isinstance(said, dict) or set(said) != set(kinds):
        raise ValueError("its head is not as it should be")
    for name, kind in kinds.items():
        if type(said[name]) is not kind:
            raise ValueError(f"{name} must be {kind.__name__}")


def _check_look(found: dict[str, Tensor]) -> None:
    """Raise unless the tensors are those of one look."""
    needed = set(_TENSORS) - set(_KEPT)
    if not needed <= set(found) or (found.keys() & set(_KEPT)) not in (set(), set(_KEPT)):
        raise ValueError("tensors are missing")
    for name, x in found.items():
        if x.dtype not in _DTYPES.get(name, (torch.float32, torch.float64)):
            raise ValueError(f"{name} is of another kind")
    if found["chosen"].ndim != 1 or any(found[name].ndim < axes for name, axes in _AXES.items() if name in found):
        raise ValueError("an axis is missing")
    *lead, n = found["entropy"].shape
    m, k, count = found["received"].shape[-1], found["top_keys"].shape[-1], len(found["chosen"])
    r, c = found["map"].shape[-2:]
    d = found["query"].shape[-1] if "query" in found else 0
    rows = dict.fromkeys(("entropy", "peak", "total", "first", "local", "distance", "logsumexp"), (n,))
    pairs = {"top_keys": (n, k), "top_weights": (n, k), "received": (m,), "map": (r, c), "rows": (count, m)}
    for name, own in (rows | pairs | {"query": (n, d), "spans": (n, 2)}).items():
        if name in found and tuple(found[name].shape) != (*lead, *own):
            raise ValueError(f"{name} has another shape")
    if "key" in found:
        shape = found["key"].shape
        # key heads serve query heads in groups; with two or three axes there are no heads
        groups = shape[-3] if len(lead) > 1 and len(shape) > 2 else 0
        wanted = (*lead[:-1], groups, m, d) if len(lead) > 1 else (*lead, m, d)
        if tuple(shape) != wanted or (len(lead) > 1 and (not groups or lead[-1] % groups)):
            raise ValueError("key has another shape")
        _need_range("spans", found["spans"], 0, m)
    _need_range("top_keys", found["top_keys"], -1, m - 1)
    _need_range("chosen", found["chosen"], 0, n - 1)
    if k > m or (r, c) != (_count_blocks(n, r), _count_blocks(m, c)):
        raise ValueError("map has another shape" if k <= m else "top_keys has another shape")


def _count_blocks(size: int, blocks: int) -> int:
    """How many blocks there are where so many are said to be: some numbers cannot be."""
    return -(-size // -(-size // max(blocks, 1))) if size else 0


def _need_range(name: str, x: Tensor, low: int, high: int) -> None:
    if x.numel() and not (low <= int(x.min()) and int(x.max()) <= high):
        raise ValueError(f"{name} is out of range")


def _need() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise RegardError("seen.save and Seen.load need safetensors: pip install safetensors.") from None
    return safetensors.torch


def _find(path: Any) -> pathlib.Path:
    if not isinstance(path, str | os.PathLike):
        raise RegardError(f"a path must be a text or a path, got {type(path).__name__}.")
    return pathlib.Path(path)


def _short(path: pathlib.Path) -> str:
    name = plain(str(path))
    return name if len(name) <= 70 else f"…{name[-69:]}"
