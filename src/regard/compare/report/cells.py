"""Measured numbers as they are read: names of kinds, powers, lengths of chains, seconds, means over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regard.compare.kinds import KINDS
from regard.compare.measure.budget import WHY
from regard.engine.call import show_bytes

Row = Mapping[str, Any]
# where there is no number
NOTHING = "–"
# half the width of an interval from which on an exponent says little
VAGUE = 0.25
# at fewer lengths nothing is said of those between and beyond
ENOUGH = 3


def name_kind(name: str) -> str:
    """
    >>> name_kind("rnn"), name_kind("mine")
    ('plain RNN', 'mine')
    """
    return KINDS[name].label if name in KINDS else name


def name_edge(edge: Row) -> str:
    """
    >>> name_edge({"kind": "conv", "k": 5, "has_position": False})
    'convolution, k = 5, no position'
    """
    kernel = "" if edge["k"] is None else f", k = {edge['k']}"
    return name_kind(edge["kind"]) + kernel + ("" if edge["has_position"] else ", no position")


def tell_skipped(part: Mapping[str, Any]) -> str:
    """What models there was no time for; nothing where there was time for all.

    >>> tell_skipped({"skipped": [{"kind": kind, "has_position": False, "why": "no time"} for kind in ("conv", "gru")]})
    'Left out (no time): without positions convolution and GRU.'
    """
    why: dict[str, dict[str, list[str]]] = {}
    for row in part.get("skipped", []):
        if "images" in row:
            group = f"from {row['images']:,} images"
        else:
            group = "with positions" if row["has_position"] else "without positions"
        why.setdefault(row["why"], {}).setdefault(group, []).append(name_kind(row["kind"]))
    said = []
    for reason, groups in why.items():
        models = "; ".join(f"{group} {show_list(kinds)}" for group, kinds in groups.items())
        said.append(f"Left out ({reason}): {models}.")
    return " ".join(said)


def tell_missing(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """How much of all that is timed and trained there was no time for; nothing where there was time for all.

    >>> tell_missing({"cost": {"rows": [{"kind": "conv"}], "skipped": [{"kind": "gru", "why": WHY}]}})
    '1 of 2 measurements was left out for lack of time; run without --quick for all.'
    """
    left = whole = 0
    for name, part in parts.items():
        skipped = part.get("skipped", [])
        # a model is trained once, and asked at many distances
        done = part["rows"] if name == "cost" else part.get("training")
        left += sum(row["why"] == WHY for row in skipped)
        whole += len(skipped) + (len(done) if isinstance(done, list) else 0)
    if not left:
        return ""
    were = "was" if left == 1 else "were"
    return f"{left} of {whole} measurements {were} left out for lack of time; run without --quick for all."


def compare_at(rows: Iterable[Row], cross: Row) -> dict[int, float]:
    """What one of a measured crossing takes more than the other, at each length that both were measured at.

    >>> place = {"batch": 1, "pass": "forward"}
    >>> rows = [{**place, "n": 32, "kind": "a", "bytes": 5}, {**place, "n": 32, "kind": "b", "bytes": 8}]
    >>> compare_at(rows, {**place, "one": "a", "other": "b", "of": "bytes"})
    {32: -3}
    """
    of, place = cross["of"], {"batch": cross["batch"], "pass": cross["pass"]}
    one, other = (
        {row["n"]: row[of] for row in take(rows, kind=cross[which], **place) if row[of] is not None}
        for which in ("one", "other")
    )
    return {n: one[n] - other[n] for n in sorted(one.keys() & other)}


def is_sparse(rows: Iterable[Row], cross: Row) -> bool:
    """Whether a crossing was measured, at too few lengths to speak of others."""
    return cross["batch"] is not None and len(compare_at(rows, cross)) < ENOUGH


def tell_noise(rows: Sequence[Row]) -> str:
    """How many timings may be of what else the machine did; nothing where none is."""
    count = sum(map(is_noisy, rows))
    if not count:
        return ""
    return f"{count} of {len(rows)} timings are uncertain (?): half of the rounds took twice as long as the fastest. "


def is_noisy(row: Row) -> bool:
    """Whether the median of the rounds is more than twice the fastest.

    >>> is_noisy({"seconds": 0.234, "fastest": 0.001}), is_noisy({"seconds": 0.0012, "fastest": 0.001})
    (True, False)
    """
    fastest = row.get("fastest")
    return fastest is not None and row["seconds"] is not None and row["seconds"] > 2 * fastest


def list_kinds(rows: Iterable[Row]) -> list[str]:
    """The kinds that are in the rows, each once, in their order."""
    return list(dict.fromkeys(row["kind"] for row in rows))


def take(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have all of these values.

    >>> take([{"kind": "conv", "n": 8}, {"kind": "rnn", "n": 8}], kind="rnn")
    [{'kind': 'rnn', 'n': 8}]
    """
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def take_reached(part: Mapping[str, Any], **wanted: Any) -> list[Row]:
    """The rows of a part that learns at distances that the kind reaches at all."""
    reach = part["reach"]
    rows = take(part["rows"], **wanted)
    return [row for row in rows if reach.get(row["kind"]) is None or row["distance"] <= reach[row["kind"]]]


def show_powers(exponents: Mapping[str, float | None], digits: int = 2) -> str:
    """
    >>> show_powers({"n": 1.0, "d": 1.996, "k": 1.0})
    'n^1.00 d^2.00 k^1.00'
    """
    order = [axis for axis in ("n", "d", "k") if exponents.get(axis) is not None]
    return " ".join(f"{axis}^{exponents[axis]:.{digits}f}" for axis in order) or NOTHING


def is_vague(fit: Row) -> bool:
    """Whether a fitted exponent may be another by much: its interval is unknown or wider than ± VAGUE.

    >>> is_vague({"exponent": 1.0, "interval": [0.95, 1.05]}), is_vague({"exponent": 1.0, "interval": [-4.0, 6.0]})
    (False, True)
    """
    interval = fit["interval"]
    return not interval or None in interval or interval[1] - interval[0] > 2 * VAGUE


def show_growth(fit: Row) -> str:
    """An exponent of time or memory; what is vague is shown to be.

    >>> show_growth({"exponent": 1.003, "interval": [0.95, 1.05]}), show_growth({"exponent": 1.2, "interval": None})
    ('n^1.00', 'n^1.2 ?')
    """
    if fit["exponent"] is None:
        return NOTHING
    return f"n^{fit['exponent']:.1f} ?" if is_vague(fit) else f"n^{fit['exponent']:.2f}"


def show_steps(fit: Row) -> str:
    """
    >>> show_steps({"per_token": 3, "constant": 1, "is_exact": True})
    '3n + 1'
    >>> show_steps({"per_token": 0.5, "constant": 2.25, "is_exact": False})
    '≈ 0.5n + 2.25'
    """
    slope, constant = fit["per_token"], fit["constant"]
    if slope is None or constant is None:
        return NOTHING
    text = "" if slope == 0 else "n" if slope == 1 else f"{slope:.3g}n"
    if constant or not text:
        sign = f" {'−' if constant < 0 else '+'} " if text else "−" if constant < 0 else ""
        text += f"{sign}{abs(constant):.3g}"
    return text if fit["is_exact"] else f"≈ {text}"


def show_seconds(seconds: float | None) -> str:
    """
    >>> show_seconds(0.00123), show_seconds(2.5), show_seconds(4e-6)
    ('1.23 ms', '2.5 s', '4 µs')
    """
    if seconds is None:
        return NOTHING
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def show_size(count: float | None) -> str:
    return NOTHING if count is None else show_bytes(count)


def show_share(share: float | None) -> str:
    """
    >>> show_share(0.996), show_share(None)
    ('99.6 %', '–')
    """
    return NOTHING if share is None else f"{100 * share:.1f} %"


def show_number(value: Any) -> str:
    """
    >>> show_number(65536), show_number(0.12345), show_number(None), show_number(True)
    ('65,536', '0.123', '–', 'yes')
    """
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def show_list(words: Sequence[str], last: str = "and") -> str:
    """
    >>> show_list(["a", "b", "c"])
    'a, b and c'
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def average(rows: Iterable[Row]) -> float | None:
    """The accuracy over all that was asked in these rows; None where nothing was.

    >>> average([{"accuracy": 1.0, "count": 30}, {"accuracy": 0.0, "count": 10}])
    0.75
    """
    known = [row for row in rows if row["accuracy"] is not None and row["count"]]
    count = sum(row["count"] for row in known)
    return math.fsum(row["accuracy"] * row["count"] for row in known) / count if count else None


def bound_error(share: float, count: int, times: float = 3.0) -> float:
    """How far from `share` the accuracy of guesses may lie by chance: this many standard errors.

    >>> round(bound_error(0.5, 900), 3)
    0.05
    """
    return times * math.sqrt(share * (1 - share) / max(count, 1))


def choose(values: Iterable[int | None], wanted: int | None) -> int | None:
    """Of those that were measured, the one that is wanted, else the middle one.

    >>> choose([32, 64, 128], 64), choose([5, 3, 7], 11), choose([], 3)
    (64, 5, None)
    """
    known = sorted({value for value in values if value is not None})
    if not known:
        return None
    return wanted if wanted in known else known[len(known) // 2]


def choose_sizes(rows: Sequence[Row], settings: Mapping[str, Any]) -> list[Row]:
    """The rows of one width and, where there are kernels, of one kernel: those of the settings if they are there."""
    dims = settings.get("dims") or {}
    d = choose((row["d"] for row in rows), dims.get("width"))
    k = choose((row["k"] for row in rows), dims.get("kernel"))
    return [row for row in rows if row["d"] == d and row["k"] in (k, None)]
