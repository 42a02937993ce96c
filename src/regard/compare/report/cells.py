"""Measured numbers as they are read, and how rows of them are found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from regard.compare.kinds import KINDS
from regard.compare.rows import Numbers
from regard.engine.call import show_bytes

# where there is no number
NOTHING = "–"
UNITS = {1.0: "s", 1e-3: "ms", 1e-6: "µs"}


def average(rows: Iterable[Numbers]) -> float:
    """The accuracy over all that was asked in these rows; NaN where nothing was.

    >>> average([{"accuracy": 1.0, "count": 30}, {"accuracy": 0.0, "count": 10}])
    0.75
    """
    asked = [row for row in rows if row["count"]]
    count = sum(row["count"] for row in asked)
    return math.fsum(row["accuracy"] * row["count"] for row in asked) / count if count else math.nan


def bound_error(share: float, count: int, times: float = 3.0) -> float:
    """How far from `share` the accuracy of guesses may lie by chance: this many standard errors.

    >>> round(bound_error(0.5, 900), 3)
    0.05
    """
    return times * math.sqrt(share * (1 - share) / max(count, 1))


def name_kind(name: str) -> str:
    """As a report calls it; a kind that is not of `KINDS` goes by its name."""
    return KINDS[name].label if name in KINDS else name


def name_each(rows: Iterable[Numbers], tell: Callable[[Numbers], str]) -> list[str]:
    """The kind of each row, and what is told of it."""
    return [f"{name_kind(row['kind'])} {tell(row)}" for row in rows]


def show_list(words: Iterable[str]) -> str:
    """
    >>> show_list(["a", "b", "c"])
    'a, b and c'
    """
    *others, last = list(words) or [""]
    return f"{', '.join(others)} and {last}" if others else last


def show_scaled(value: float, units: Mapping[float, str] = UNITS) -> str:
    """A number, of seconds or what the units say, in the largest unit that it has one of.

    >>> show_scaled(0.00123), show_scaled(2.5), show_scaled(4e-6), show_count(2e6), show_count(500)
    ('1.23 ms', '2.5 s', '4 µs', '2 M', '500')
    """
    size = next((size for size in units if value >= size), min(units))
    return f"{value / size:.3g} {units[size]}".rstrip()


show_count = partial(show_scaled, units={1e9: "G", 1e6: "M", 1e3: "k", 1: ""})


def show_share(share: float) -> str:
    """
    >>> show_share(0.996), show_share(math.nan)
    ('99.6 %', '–')
    """
    return NOTHING if math.isnan(share) else f"{100 * share:.1f} %"


def show_powers(exponents: Mapping[str, float], digits: int = 2) -> str:
    """
    >>> show_powers({"n": 1.0, "d": 1.996, "k": 1.0})
    'n^1.00 d^2.00 k^1.00'
    """
    return " ".join(f"{axis}^{exponents[axis]:.{digits}f}" for axis in "ndk" if axis in exponents) or NOTHING


def show_number(value: Any) -> str:
    """
    >>> show_number(65536), show_number(0.12345), show_number(None), show_number(True)
    ('65,536', '0.123', '–', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return NOTHING if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


# by the column of a list
SHOWN: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("kind", "one", "other"), name_kind), **dict.fromkeys(("seconds", "low", "high"), show_scaled),
    **dict.fromkeys(("accuracy", "within", "beyond"), show_share), "bytes": show_bytes, "exponents": show_powers,
}  # fmt: skip


def tell_skipped(part: Numbers) -> Iterator[str]:
    """What models there was no time for, a sentence for each reason.

    >>> [*tell_skipped({"skipped": [{"kind": kind, "has_position": False, "why": "late"} for kind in ("conv", "gru")]})]
    ['Left out (late): without positions convolution and GRU.']
    """
    why: dict[str, dict[str, list[str]]] = {}
    for row in part.get("skipped", []):
        placed = f"with{'' if row.get('has_position') else 'out'} positions"
        group = f"from {row['images']:,} images" if "images" in row else placed
        why.setdefault(row["why"], {}).setdefault(group, []).append(name_kind(row["kind"]))
    for reason, groups in why.items():
        yield f"Left out ({reason}): {'; '.join(f'{group} {show_list(kinds)}' for group, kinds in groups.items())}."
