"""Power laws through what was measured, with how sure they are; and where one curve crosses another."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from regard.compare.kinds import ATTENTION, Kind
from regard.compare.rows import Numbers, group, take
from regard.compare.settings import Dimensions
from regard.core import RegardError

Span = list[float | None]
# formulas that have not crossed at two to this power never do
FARTHEST = 41


@dataclass(frozen=True)
class Fit:
    """The exponent of each axis, with the interval that holds it in 95 of 100 cases."""

    exponents: dict[str, float]
    intervals: dict[str, list[float]]
    points: int


def fit_power(values: Sequence[float], **axes: Sequence[float]) -> Fit:
    """The power law nearest to the values, by least squares of their logarithms; there are more of them than axes.

    >>> fit = fit_power([3, 12, 27, 48], n=[1, 2, 3, 4])
    >>> round(fit.exponents["n"], 6), [round(end, 6) for end in fit.intervals["n"]]
    (2.0, [2.0, 2.0])

    The intervals are Student's, for scatter that is the same at all points.
    """
    from scipy import stats  # type: ignore[import-untyped]

    if wrong := [x for x in values if not 0 < x < float("inf")]:
        raise RegardError(f"fit_power values must be above zero and finite to have a logarithm, got {wrong[0]}.")
    logs, table = np.log(values), np.log(np.stack(list(axes.values()), axis=1))
    # around their means, the factor is found apart from the slopes
    logs, table = logs - logs.mean(), table - table.mean(0)
    slopes, *_ = np.linalg.lstsq(table, logs, rcond=1e-9)
    spare = len(values) - len(axes) - 1
    residuals = logs - table @ slopes
    # what rounding leaves of a law that is met exactly is no scatter
    residuals[np.abs(residuals) <= 16 * np.finfo(np.float64).eps * np.abs(np.log(values)).max()] = 0
    spread = np.sqrt(residuals @ residuals / spare * np.diag(np.linalg.inv(table.T @ table)))
    ends = spread * stats.t.ppf(0.975, spare)
    intervals = np.stack([slopes - ends, slopes + ends], axis=1).tolist()
    found, bounds = (dict(zip(axes, each, strict=True)) for each in (slopes.tolist(), intervals))
    return Fit(found, bounds, len(values))


@dataclass(frozen=True)
class Crossing:
    """Which is `cheaper` at the short end, "one" or "other", and the lengths at which that turns; None: they are equal.

    >>> Crossing((64.0, 100.0), "one").list_spans()
    [[None, 64.0], [100.0, None]]
    """

    turns: tuple[float, ...]
    cheaper: str | None

    def list_spans(self) -> list[Span]:
        """From which length to which "one" is the cheaper; None is as far as it goes."""
        spans = list(pairwise((None, *self.turns, None)))
        return [list(span) for span in spans[self.cheaper != "one" :: 2]] if self.cheaper else []


def find_crossing(lengths: Sequence[float], one: Sequence[float], other: Sequence[float]) -> Crossing:
    """Where two curves cross that were measured at the same lengths, power laws between them; to touch is not to cross.

    >>> find_crossing([1, 4, 16], [1, 4, 16], [2, 4, 8])
    Crossing(turns=(4.0,), cheaper='one')
    """
    for name, given in (("one", one), ("other", other)):
        if wrong := [x for x in given if not 0 < x < math.inf]:
            raise RegardError(f"find_crossing {name} must be above zero and finite, got {wrong[0]}.")
    gaps = sorted((math.log(n), math.log(a / b)) for n, a, b in zip(lengths, one, other, strict=True))
    # where they are equal they are on neither side
    apart = [(at, gap) for at, gap in gaps if gap]
    turns = []
    for (start, before), (end, after) in pairwise(apart):
        if before * after < 0:
            # lengths at which they are equal lie between the two, and are the crossing
            level = [at for at, gap in gaps if start < at < end and not gap]
            turns.append(math.exp(level[0] if level else start + (end - start) * before / (before - after)))
    return Crossing(tuple(turns), _name_cheaper(apart[0][1] if apart else 0))


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
    far = next((2**k for k in range(FARTHEST) if find_gap(2**k) * start <= 0), None)
    if not start or far is None:
        return Crossing((), _name_cheaper(start))
    # between the last power of two before it and this one
    far = bisect_left(range(far), True, lo=far // 2, key=lambda n: find_gap(n) * start <= 0) if far > 1 else far
    near = max(far - 1, 1)
    before, after = find_gap(near), find_gap(far)
    n = near + before / (before - after) if before != after else Fraction(near)
    return Crossing((float(n),), _name_cheaper(start))


def _name_cheaper(gap: float | Fraction) -> str | None:
    return None if not gap else "one" if gap < 0 else "other"


def list_crossings(
    rows: Sequence[Numbers], kinds: Mapping[str, Kind], shapes: Mapping[str, Dimensions]
) -> list[Numbers]:
    """Where self-attention crosses each other kind, as measured over the lengths that both have, and by formula.

    >>> from regard.compare.kinds import KINDS
    >>> shapes = dict.fromkeys(KINDS, Dimensions(width=64, kernel=3, heads=4, window=32))
    >>> {row["other"]: row["spans"] for row in list_crossings([], KINDS, shapes) if row["of"] == "operations"}
    {'conv': [], 'rnn': [], 'gru': [[None, 64.0]], 'linear': [[None, 16.0]]}

    `spans` are the lengths at which self-attention is the cheaper, each from and to; None is as far as was measured.
    By `operations` projections count too; by `textbook` it is the table as printed, without factors.
    """
    found: list[Numbers] = []
    for other in [name for name in kinds if name != ATTENTION.name] if ATTENTION.name in kinds else []:
        pair, crossings = (ATTENTION.name, other), dict[tuple[int | None, str | None, str], Crossing]()
        for (batch, which), here in group(rows, "batch", "pass").items():
            curves = [{row["n"]: row for row in take(here, kind=kind)} for kind in pair]
            if lengths := sorted(curves[0].keys() & curves[1]):
                for of in ("seconds", "bytes"):
                    values = ([curve[n][of] for n in lengths] for curve in curves)
                    crossings[batch, which, of] = find_crossing(lengths, *values)
        for of, make in (("operations", _count_products), ("textbook", _read_table)):
            first, second = (make(kinds[kind], shapes[kind]) for kind in pair)
            if first and second:
                crossings[None, None, of] = solve_crossing(first, second)
        for (batch, which, of), crossing in crossings.items():
            case = {"one": ATTENTION.name, "other": other, "batch": batch, "pass": which, "of": of}
            found.append({**case, "is_equal": crossing.cheaper is None, "spans": crossing.list_spans()})
    return found


def _count_products(kind: Kind, shape: Dimensions) -> Callable[[int], int] | None:
    """All products of the layer: those in which tokens meet, and those of each token by itself."""
    mixing, projecting = kind.mixing, kind.projecting
    return None if mixing is None else lambda n: mixing(shape, n) + projecting(shape, n)


def _read_table(kind: Kind, shape: Dimensions) -> Callable[[int], int] | None:
    """The operations as the textbooks print them: letters, some of them squared."""
    if not re.fullmatch(r"[ndkw]²?(·[ndkw]²?)*", kind.textbook[0]):
        # a logarithm, or a letter of one's own
        return None
    letters = {"d": shape.width, "k": shape.kernel, "w": shape.window}
    factors = [(part[0], len(part)) for part in kind.textbook[0].split("·")]
    return lambda n: math.prod({**letters, "n": n}[letter] ** power for letter, power in factors)


def list_leads(crossings: Sequence[Numbers]) -> list[Numbers]:
    """The lengths at which self-attention is cheaper than any other, as spans; to be equal is no obstacle.

    >>> case = {"one": "attention", "batch": None, "pass": None, "of": "textbook", "is_equal": False}
    >>> pairs = [{**case, "other": "gru", "spans": [[None, 64.0]]}, {**case, "other": "rnn", "spans": [[9.0, 99.0]]}]
    >>> list_leads(pairs)
    [{'batch': None, 'pass': None, 'of': 'textbook', 'spans': [[9.0, 64.0]]}]
    """
    leads: list[Numbers] = []
    for (batch, which, of), rows in group(crossings, "batch", "pass", "of").items():
        spans: list[Span] = [[None, None]]
        for row in take(rows, is_equal=False):
            spans = [both for one in spans for other in row["spans"] if (both := _overlap(one, other))]
        leads.append({"batch": batch, "pass": which, "of": of, "spans": spans})
    return leads


def _overlap(one: Span, other: Span) -> Span:
    """The lengths that are in both spans; empty if there are none."""
    start = max(one[0] or 0.0, other[0] or 0.0)
    end = min(one[1] or math.inf, other[1] or math.inf)
    return [start or None, None if end == math.inf else end] if start < end else []
