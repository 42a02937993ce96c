"""Looks at the steps of decoding, joined into one."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.look import Look

_ROWS = "entropy", "peak", "total", "first", "local", "distance"


def list_runs(modules: Mapping[str, str], steps: Container[str]) -> dict[str, list[str]]:
    """Calls that continue their module's last one, as steps of decoding, by the name of the first of them.

    >>> list_runs({"a": "a", "b": "b", "a#2": "a", "b#2": "b"}, {"a#2"})
    {'a': ['a', 'a#2'], 'b': ['b'], 'b#2': ['b#2']}
    """
    runs: dict[str, list[str]] = {}
    # the run that a module's last call belongs to
    open_runs: dict[str, list[str]] = {}
    for name, module in modules.items():
        if name not in steps or module not in open_runs:
            runs[name] = open_runs[module] = []
        open_runs[module].append(name)
    return runs


def stack(looks: list[Look], cells: int) -> Look:
    """The looks of several steps as one, with a map of at most `cells` cells a side."""
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
    kept = [rows for look in looks if (rows := _take(look)) is not None]
    if len(kept) < len(looks):
        return Look(**found, why=next(look.why for look in looks if _take(look) is None))
    query, key, logsumexp, spans = zip(*kept, strict=True)
    # a cache only grows: the last step has the keys of all
    longest = max(key, key=lambda x: x.shape[-2])
    found |= {"query": torch.cat(query, -2), "logsumexp": torch.cat(logsumexp, -1), "spans": torch.cat(spans, -2)}
    return Look(**found, key=longest, why="")


def _take(look: Look) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Query, key, logsumexp and spans of a look that kept them."""
    if look.query is None or look.key is None or look.logsumexp is None or look.spans is None:
        return None
    return look.query, look.key, look.logsumexp, look.spans


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
