"""Rows, as the parts have them in their lists: plain dictionaries, taken and grouped by what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# what a part has measured, one entry of its lists, or settings: plain JSON
Numbers = Mapping[str, Any]


def take(rows: Iterable[Numbers], **wanted: Any) -> list[Numbers]:
    """The rows that have all of these values.

    >>> take([{"kind": "conv", "n": 8}, {"kind": "rnn", "n": 8}], kind="rnn")
    [{'kind': 'rnn', 'n': 8}]
    """
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def group(rows: Iterable[Numbers], *keys: str) -> dict[Any, list[Numbers]]:
    """The rows by one of their values or by several, all in their order.

    >>> list(group([{"kind": "conv", "n": 8}, {"kind": "rnn", "n": 8}], "kind", "n"))
    [('conv', 8), ('rnn', 8)]
    """
    found: dict[Any, list[Numbers]] = {}
    for row in rows:
        found.setdefault(row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys), []).append(row)
    return found


def choose_sizes(rows: Sequence[Numbers], settings: Numbers) -> list[Numbers]:
    """The rows of one width and, where there are kernels, of one kernel: those of the settings, else the middle one.

    >>> choose_sizes([{"d": d, "k": None} for d in (8, 16, 32)], {"dims": {"width": 99}})
    [{'d': 16, 'k': None}]
    """
    for axis, name in (("d", "width"), ("k", "kernel")):
        known, wanted = sorted({row[axis] for row in rows} - {None}), (settings.get("dims") or {}).get(name)
        chosen = wanted if wanted in known else known[len(known) // 2] if known else None
        rows = [row for row in rows if row[axis] in (None, chosen)]
    return list(rows)
