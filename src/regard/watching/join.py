"""Steps of decoding as one look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.look import Look
from regard.watching.seen import Seen

S = TypeVar("S", bound=Seen)
_ROWS = "entropy", "peak", "total", "first", "local", "distance"


def join(seen: S) -> S:
    """Steps as one look each, by the name of the first of them."""
    runs: dict[str, list[str]] = {}
    # the run that a module's last call belongs to
    open_runs: dict[str, list[str]] = {}
    for name in seen:
        module = seen.modules[name]
        if name not in seen.steps or module not in open_runs:
            runs[name] = open_runs[module] = []
        open_runs[module].append(name)
    joined = seen._blank()
    for name, steps in runs.items():
        look = _stack([seen[step] for step in steps], seen.cells)
        check = max((seen.checks[step] for step in steps), key=lambda x: (x.is_done, not x.holds, x.ratio))
        if check.is_done:
            check = replace(check, rows=sum(seen.checks[step].rows for step in steps))
        joined.add(name, look, seen.kinds[name], check=check, module=seen.modules[name])
    joined.skipped = dict(seen.skipped)
    return joined


def _stack(looks: list[Look], cells: int) -> Look:
    if len(looks) == 1:
        return looks[0]
    m = max(look.received.shape[-1] for look in looks)
    sizes = [look.entropy.shape[-1] for look in looks]
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    k = max(look.top_keys.shape[-1] for look in looks)
    found: dict[str, Any] = {name: torch.cat([getattr(look, name) for look in looks], -1) for name in _ROWS}
    found["top_keys"] = torch.cat([_widen(look.top_keys, k, -1) for look in looks], -2)
    found["top_weights"] = torch.cat([_widen(look.top_weights, k) for look in looks], -2)
    found["received"] = torch.stack([_widen(look.received, m) for look in looks]).sum(0)
    found["rows"] = torch.cat([_widen(look.rows, m) for look in looks], -2)
    found["chosen"] = torch.cat([look.chosen + start for look, start in zip(looks, starts, strict=True)])
    found["map"] = _map(looks, starts, sum(sizes), m, cells)
    found["terms"] = looks[0].terms
    missing = next((look.why for look in looks if look.query is None), None)
    if missing is not None:
        return Look(**found, why=missing)
    kept: dict[str, Any] = {name: torch.cat([_take(look, name) for look in looks], -1) for name in ("stat",)}
    kept |= {name: torch.cat([_take(look, name) for look in looks], -2) for name in ("query", "spans")}
    # a cache only grows: the last step has the keys of all
    kept["key"] = max((_take(look, "key") for look in looks), key=lambda key: key.shape[-2])
    return Look(**found, **kept, why="")


def _take(look: Look, name: str) -> Tensor:
    x = getattr(look, name)
    assert isinstance(x, Tensor), "kept looks keep all four"
    return x


def _widen(x: Tensor, size: int, value: float = 0.0) -> Tensor:
    return pad(x, (0, size - x.shape[-1]), value=value)


def _map(looks: list[Look], starts: list[int], n: int, m: int, cells: int) -> Tensor:
    """The maps as one, each block of a step spread evenly over the queries and keys that it stood for."""
    high, wide = max(-(-n // cells), 1), max(-(-m // cells), 1)
    total = looks[0].map.new_zeros(*looks[0].map.shape[:-2], -(-n // high), -(-m // wide)).double()
    for look, start in zip(looks, starts, strict=True):
        block = look.block
        lines = _share(look.entropy.shape[-1], block[0], look.map.shape[-2], start, high, total.shape[-2], look.map)
        columns = _share(look.received.shape[-1], block[1], look.map.shape[-1], 0, wide, total.shape[-1], look.map)
        total += lines @ look.map.double() @ columns.transpose(0, 1)
    return total.to(looks[0].map.dtype)


def _share(count: int, block: int, blocks: int, start: int, into: int, cells: int, like: Tensor) -> Tensor:
    """Which part of each old block lies in each new cell, (cells, blocks)."""
    place = torch.arange(count, device=like.device)
    shares = torch.zeros(cells, blocks, dtype=torch.float64, device=like.device)
    ones = torch.ones(count, dtype=torch.float64, device=like.device)
    shares.index_put_(((place + start) // into, place // block), ones, accumulate=True)
    return shares / shares.sum(0).clamp(min=1)
