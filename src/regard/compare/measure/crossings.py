"""Where one becomes dearer than another: on measured curves, and by formulas."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from regard.compare.kinds import ATTENTION, Dimensions, Kind
from regard.core import RegardError

Row = dict[str, Any]
# beyond this, formulas that have not crossed never do
FARTHEST = 2**40


@dataclass(frozen=True)
class Crossing:
    """Which is `cheaper` at the short end, "one" or "other", and the lengths at which that turns; None: they are equal.

    >>> Crossing((64.0, 100.0), "one").list_spans()
    [[None, 64.0], [100.0, None]]
    """

    turns: tuple[float, ...]
    cheaper: str | None

    def list_spans(self) -> list[list[float | None]]:
        """From which length to which "one" is the cheaper; None is as far as it goes."""
        if self.cheaper is None:
            return []
        spans = list(pairwise((None, *self.turns, None)))
        return [list(span) for span in spans[self.cheaper != "one" :: 2]]


def find_crossing(lengths: Sequence[float], one: Sequence[float], other: Sequence[float]) -> Crossing:
    """Where two curves cross that were measured at the same lengths.

    >>> find_crossing([1, 4, 16], [1, 4, 16], [2, 4, 8])
    Crossing(turns=(4.0,), cheaper='one')

    Between two lengths both are taken for power laws: straight where both axes are logarithmic. To touch is not to
    cross.
    """
    for name, given in (("lengths", lengths), ("one", one), ("other", other)):
        if len(given) != len(lengths):
            raise RegardError(f"find_crossing {name} must be as many as the lengths: {len(given)}, not {len(lengths)}.")
        if wrong := [x for x in given if not 0 < x < math.inf]:
            raise RegardError(f"find_crossing {name} must be above zero and finite, got {wrong[0]}.")
    gaps = sorted((math.log(n), math.log(a / b)) for n, a, b in zip(lengths, one, other, strict=True))
    # where they are equal they are on neither side
    apart = [(at, gap) for at, gap in gaps if gap]
    if not apart:
        return Crossing((), None)
    turns = []
    for (start, before), (end, after) in pairwise(apart):
        if before * after < 0:
            # lengths at which they are equal lie between the two, and are the crossing
            level = [at for at, gap in gaps if start < at < end and not gap]
            turns.append(math.exp(level[0] if level else start + (end - start) * before / (before - after)))
    return Crossing(tuple(turns), _name(apart[0][1]))


def solve_crossing(one: Callable[[int], int], other: Callable[[int], int]) -> Crossing:
    """Where a count of n becomes larger than another, for the first time.

    >>> solve_crossing(lambda n: 4 * n * n + 8 * n, lambda n: 18 * n)
    Crossing(turns=(2.5,), cheaper='one')

    It is exact between whole numbers too where the counts are a·n² + b·n.
    """

    def find_gap(n: int) -> Fraction:
        # of each token: the difference of two such counts is then a straight line
        return Fraction(one(n) - other(n), n)

    start = find_gap(1) or -find_gap(2)
    if not start:
        return Crossing((), None)
    far = 1
    while far < FARTHEST and find_gap(far) * start > 0:
        far *= 2
    if find_gap(far) * start > 0:
        return Crossing((), _name(start))
    near = max(far // 2, 1)
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if find_gap(middle) * start > 0 else (near, middle)
    before, after = find_gap(near), find_gap(far)
    n = near + before / (before - after) if before != after else Fraction(near)
    return Crossing((float(n),), _name(start))


def list_crossings(rows: Sequence[Row], kinds: Mapping[str, Kind], shapes: Mapping[str, Dimensions]) -> list[Row]:
    """Where self-attention crosses each other kind, as measured and by formula.

    >>> from regard.compare.kinds import KINDS
    >>> shapes = dict.fromkeys(KINDS, Dimensions(width=64, kernel=3, heads=4, window=32))
    >>> {row["other"]: row["spans"] for row in list_crossings([], KINDS, shapes) if row["of"] == "operations"}
    {'conv': [], 'rnn': [], 'gru': [[None, 64.0]], 'linear': [[None, 16.0]]}

    `spans` are the lengths at which self-attention is the cheaper, each from and to; None is as far as was measured.
    Measured is one for each batch, pass, and of seconds and bytes, over the lengths that both have. By `operations`
    every product of the layer counts, projections too; by `textbook` it is the table as printed, without factors.
    """
    if ATTENTION.name not in kinds:
        return []
    found = []
    for name in kinds:
        if name == ATTENTION.name:
            continue
        for place, crossing in (*_cross_curves(rows, name), *_cross_formulas(kinds, shapes, name)):
            pair = {"one": ATTENTION.name, "other": name, **place}
            found.append({**pair, "is_equal": crossing.cheaper is None, "spans": crossing.list_spans()})
    return found


def list_leads(crossings: Sequence[Row]) -> list[Row]:
    """The lengths at which self-attention is cheaper than any other, as spans; to be equal is no obstacle.

    >>> case = {"one": "attention", "batch": None, "pass": None, "of": "textbook", "is_equal": False}
    >>> pairs = [{**case, "other": "gru", "spans": [[None, 64.0]]}, {**case, "other": "rnn", "spans": [[9.0, 99.0]]}]
    >>> list_leads(pairs)
    [{'batch': None, 'pass': None, 'of': 'textbook', 'spans': [[9.0, 64.0]]}]
    """
    leads = []
    for place in dict.fromkeys((row["batch"], row["pass"], row["of"]) for row in crossings):
        spans: list[list[float | None]] = [[None, None]]
        for row in crossings:
            if (row["batch"], row["pass"], row["of"]) == place and not row["is_equal"]:
                spans = [both for one in spans for other in row["spans"] if (both := _overlap(one, other))]
        leads.append({**dict(zip(("batch", "pass", "of"), place, strict=True)), "spans": spans})
    return leads


def _overlap(one: Sequence[float | None], other: Sequence[float | None]) -> list[float | None]:
    """The lengths that are in both spans; empty if there are none."""
    start = max(one[0] or 0.0, other[0] or 0.0)
    end = min(math.inf if one[1] is None else one[1], math.inf if other[1] is None else other[1])
    return [start or None, None if end == math.inf else end] if start < end else []


def _cross_curves(rows: Sequence[Row], name: str) -> Iterator[tuple[Row, Crossing]]:
    """By what was measured, where both were."""
    for batch, which in dict.fromkeys((row["batch"], row["pass"]) for row in rows):
        one, other = (
            {row["n"]: row for row in rows if (row["kind"], row["batch"], row["pass"]) == (kind, batch, which)}
            for kind in (ATTENTION.name, name)
        )
        if lengths := sorted(one.keys() & other):
            for of in ("seconds", "bytes"):
                curves = ([curve[n][of] for n in lengths] for curve in (one, other))
                yield {"batch": batch, "pass": which, "of": of}, find_crossing(lengths, *curves)


def _cross_formulas(
    kinds: Mapping[str, Kind], shapes: Mapping[str, Dimensions], name: str
) -> Iterator[tuple[Row, Crossing]]:
    """By the formulas of both, where they have one."""
    pair = [(kinds[x], shapes[x]) for x in (ATTENTION.name, name)]
    for of, make in (("operations", _count_products), ("textbook", _read_table)):
        one, other = (make(kind, shape) for kind, shape in pair)
        if one and other:
            yield {"batch": None, "pass": None, "of": of}, solve_crossing(one, other)


def _count_products(kind: Kind, shape: Dimensions) -> Callable[[int], int] | None:
    """All products of the layer: those in which tokens meet, and those of each token by itself."""
    mixing, projecting = kind.mixing, kind.projecting
    return None if mixing is None else lambda n: mixing(shape, n) + projecting(shape, n)


def _read_table(kind: Kind, shape: Dimensions) -> Callable[[int], int] | None:
    """The operations as the textbooks print them: letters, some of them squared."""
    letters = {"d": shape.width, "k": shape.kernel, "w": shape.window}
    if not re.fullmatch(r"[ndkw]²?(·[ndkw]²?)*", kind.textbook[0]):
        # a logarithm, or a letter of one's own
        return None
    factors = [(part[0], 2 if part.endswith("²") else 1) for part in kind.textbook[0].split("·")]
    return lambda n: math.prod({**letters, "n": n}[letter] ** power for letter, power in factors)


def _name(gap: float | Fraction) -> str:
    return "one" if gap < 0 else "other"
