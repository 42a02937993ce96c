"""Looks as a file: safetensors, with names and texts as JSON in its head."""

from __future__ import annotations

import json
import math
import os
import pathlib
from dataclasses import asdict, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.core import RegardError
from regard.core.files import write_whole
from regard.engine.look import Look
from regard.watching.check import Check
from regard.watching.seen import Seen

S = TypeVar("S", bound=Seen)
FORMAT = "regard.seen.1"
_KEPT = "query", "key", "stat", "spans"
_TENSORS = tuple(field.name for field in fields(Look) if field.name not in ("terms", "why"))
_WHOLE = "top_keys", "chosen", "spans"


def save(seen: Seen, path: str | os.PathLike[str]) -> None:
    """Write all looks to one file, whole or not at all."""
    safetensors = _need()
    tensors: dict[str, Tensor] = {}
    entries = []
    for number, (name, look) in enumerate(seen.items()):
        for field in _TENSORS:
            if isinstance(x := getattr(look, field), Tensor):
                tensors[f"{number}.{field}"] = x.detach().cpu().contiguous().clone()
        entries.append(
            {
                "name": name,
                "module": seen.modules[name],
                "kind": seen.kinds[name],
                "step": name in seen.steps,
                "terms": look.terms,
                "why": look.why,
                "check": asdict(seen.checks[name]),
            }
        )
    head = {"model": seen.model, "cells": seen.cells, "entries": entries, "skipped": seen.skipped}
    text = json.dumps(head, ensure_ascii=True, allow_nan=True)
    write_whole(pathlib.Path(path), safetensors.save(tensors, {"format": FORMAT, "seen": text}))


def load(path: str | os.PathLike[str], seen: S) -> S:
    """Fill `seen` from a file."""
    _need()
    from safetensors import SafetensorError, safe_open

    path = pathlib.Path(path)
    if not path.is_file():
        raise RegardError(f"{_short(path)} is not there: seen.save(…) writes such a file.")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            head = file.metadata() or {}
            names = set(file.keys())
            if head.get("format") != FORMAT:
                raise RegardError(f"{_short(path)} is not a file of seen.save(…): its head does not say {FORMAT!r}.")
            said = json.loads(head.get("seen", ""))
            entries = _read_head(said, seen)
            for number, entry in enumerate(entries):
                mine = {field for field in _TENSORS if f"{number}.{field}" in names}
                found = {field: file.get_tensor(f"{number}.{field}") for field in mine}
                names -= {f"{number}.{field}" for field in mine}
                _check_look(found)
                # a frozen check is made of what JSON has, whose kinds were seen
                look = Look(**found, terms=entry["terms"], why=entry["why"])
                check, module = Check(**entry["check"]), entry["module"]
                seen.add(entry["name"], look, entry["kind"], entry["step"], check, module)
            if names:
                raise ValueError(f"nothing is said of {min(names)[:20]}")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, RegardError):
            raise
        cause = str(error).splitlines()[0][:60] if str(error) else type(error).__name__
        raise RegardError(f"{_short(path)} is damaged ({_plain(cause)}): write it again with seen.save(…).") from None
    return seen


def _read_head(said: Any, seen: Seen) -> list[dict[str, Any]]:
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
    seen.model, seen.cells, seen.skipped = said["model"], said["cells"], dict(said["skipped"])
    return list(said["entries"])


def _need_kinds(said: Any, kinds: dict[str, type]) -> None:
    if not isinstance(said, dict) or set(said) != set(kinds):
        raise ValueError("its head is not as it should be")
    for name, kind in kinds.items():
        if type(said[name]) is not kind:
            raise ValueError(f"{name} must be {kind.__name__}")


def _check_look(found: dict[str, Tensor]) -> None:
    """Complain unless the tensors are those of one look."""
    needed = set(_TENSORS) - set(_KEPT)
    if not needed <= set(found) or (found.keys() & set(_KEPT)) not in (set(), set(_KEPT)):
        raise ValueError("tensors are missing")
    for name, x in found.items():
        whole = not x.is_floating_point() and x.dtype in (torch.int32, torch.int64)
        if (name in _WHOLE) != whole or (name not in _WHOLE and not x.is_floating_point()):
            raise ValueError(f"{name} is of another kind")
    if not found["entropy"].ndim or not found["received"].ndim or found["chosen"].ndim != 1:
        raise ValueError("an axis is missing")
    *lead, n = found["entropy"].shape
    m, k, count = found["received"].shape[-1], found["top_keys"].shape[-1], len(found["chosen"])
    r, c = found["map"].shape[-2:] if found["map"].ndim > 1 else (0, 0)
    d = found["query"].shape[-1] if "query" in found else 0
    rows = dict.fromkeys(("entropy", "peak", "total", "first", "local", "distance", "stat"), (n,))
    pairs = {"top_keys": (n, k), "top_weights": (n, k), "received": (m,), "map": (r, c), "rows": (count, m)}
    for name, own in (rows | pairs | {"query": (n, d)}).items():
        if name in found and tuple(found[name].shape) != (*lead, *own):
            raise ValueError(f"{name} has another shape")
    if "key" in found:
        key, spans = found["key"], found["spans"]
        groups = key.shape[-3] if len(lead) > 1 and key.ndim > 2 else 1
        if tuple(key.shape[-2:]) != (m, d) or key.ndim != len(lead) + 2 or (lead and lead[-1] % max(groups, 1)):
            raise ValueError("key has another shape")
        if tuple(spans.shape[-2:]) != (n, 2) or spans.ndim != len(lead) + 2:
            raise ValueError("spans has another shape")
        _need_range("spans", spans, 0, m)
    _need_range("top_keys", found["top_keys"], -1, m - 1)
    _need_range("chosen", found["chosen"], 0, n - 1)
    if r > n or c > m or (n and m and math.prod(lead) and not (r and c)):
        raise ValueError("map has another shape")


def _need_range(name: str, x: Tensor, low: int, high: int) -> None:
    if x.numel() and not (low <= int(x.min()) and int(x.max()) <= high):
        raise ValueError(f"{name} is out of range")


def _need() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise RegardError("seen.save and Seen.load need safetensors: pip install safetensors.") from None
    return safetensors.torch


def _short(path: pathlib.Path) -> str:
    name = _plain(str(path))
    return name if len(name) <= 70 else f"…{name[-69:]}"


def _plain(text: str) -> str:
    """Without line ends, and without codes that a terminal obeys."""
    return "".join(x if x.isprintable() else "?" for x in text)
