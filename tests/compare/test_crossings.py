"""Crossings of curves and formulas whose crossing is known."""

import math

import pytest

from regard import RegardError
from regard.compare.crossings import Crossing, find_crossing, list_crossings, list_leads, solve_crossing
from regard.compare.kinds import ATTENTION, KINDS, Dimensions

LENGTHS = (32, 64, 128, 256, 512, 1024)


@pytest.mark.parametrize("at", [40.0, 64.0, 100.0, 777.7, 1000.0])
def test_power_laws_cross_where_they_do(at):
    # c·n² against c·at·n
    one, other = [3e-6 * n**2 for n in LENGTHS], [3e-6 * at * n for n in LENGTHS]
    found = find_crossing(LENGTHS, one, other)
    assert found.n == pytest.approx(at, rel=1e-9)
    assert (found.cheaper, found.count) == ("one", 1)
    swapped = find_crossing(LENGTHS, other, one)
    assert swapped.n == pytest.approx(at, rel=1e-9)
    assert (swapped.cheaper, swapped.count) == ("other", 1)


def test_the_order_of_the_lengths_does_not_matter():
    one, other = [n**2 for n in LENGTHS], [100 * n for n in LENGTHS]
    assert find_crossing(LENGTHS[::-1], one[::-1], other[::-1]) == find_crossing(LENGTHS, one, other)


def test_without_a_crossing_in_range_there_is_none():
    low, high = [n**2 for n in LENGTHS], [5000 * n for n in LENGTHS]
    assert find_crossing(LENGTHS, low, high) == Crossing(None, "one", 0)
    assert find_crossing(LENGTHS, high, low) == Crossing(None, "other", 0)
    assert find_crossing([64], [1], [2]) == Crossing(None, "one", 0)
    assert find_crossing([], [], []) == Crossing(None, None, 0)


def test_to_touch_is_not_to_cross():
    assert find_crossing([1, 2, 3], [2, 2, 2], [1, 2, 1]) == Crossing(None, "other", 0)
    assert find_crossing([1, 2, 3], [1, 2, 2], [2, 2, 3]) == Crossing(None, "one", 0)
    # equal at an end is on neither side
    assert find_crossing([1, 2, 3], [2, 3, 4], [2, 2, 2]) == Crossing(None, "other", 0)
    assert find_crossing([1, 2, 3], [5, 5, 5], [5, 5, 5]) == Crossing(None, None, 0)


def test_equal_at_a_length_and_then_across_is_a_crossing_there():
    found = find_crossing([1, 2, 4, 8], [1, 2, 2, 9], [2, 2, 2, 2])
    assert found.n == pytest.approx(2)
    assert (found.cheaper, found.count) == ("one", 1)


def test_of_several_crossings_it_is_the_last_and_they_are_counted():
    found = find_crossing([1, 10, 100, 1000], [1, 3, 1, 8], [2, 2, 2, 2])
    # from half as dear at 100 to four times at 1,000: a third of the way up
    assert found.n == pytest.approx(100 * 10 ** (1 / 3))
    assert (found.cheaper, found.count) == ("one", 3)
    assert find_crossing([1, 10, 100], [1, 4, 1], [2, 2, 2]).cheaper == "other"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([1, 2], [1], [1, 2]), "find_crossing one must be as many as the lengths: 1, not 2."),
        (([1, 2], [1, 2], [1, 0]), "find_crossing other must be above zero and finite, got 0."),
        (([1, 2], [1, math.nan], [1, 1]), "find_crossing one must be above zero and finite, got nan."),
    ],
)
def test_what_is_no_curve_is_named(given, message):
    with pytest.raises(RegardError) as error:
        find_crossing(*given)
    assert str(error.value) == message


@pytest.mark.parametrize(("square", "line", "other"), [(4, 8, 12), (4, 8, 13), (1, 0, 777), (7, 3, 10**7), (2, 5, 6)])
def test_formulas_are_solved_exactly(square, line, other):
    found = solve_crossing(lambda n: square * n * n + line * n, lambda n: other * n)
    root = (other - line) / square
    expected = Crossing(root, "one", 1) if root >= 1 else Crossing(None, "other", 0)
    assert found == expected


def test_formulas_that_never_cross_say_who_is_cheaper():
    assert solve_crossing(lambda n: 2 * n, lambda n: 3 * n) == Crossing(None, "one", 0)
    assert solve_crossing(lambda n: 4 * n * n, lambda n: n) == Crossing(None, "other", 0)
    assert solve_crossing(lambda n: 5 * n, lambda n: 5 * n) == Crossing(None, None, 0)


def test_formulas_that_start_equal_cross_at_once():
    assert solve_crossing(lambda n: n * n, lambda n: n) == Crossing(1.0, "one", 1)
    assert solve_crossing(lambda n: n, lambda n: n * n) == Crossing(1.0, "other", 1)


def test_other_formulas_are_met_between_whole_numbers():
    found = solve_crossing(lambda n: n**3, lambda n: 1000 * n + 7)
    assert found.n == pytest.approx(31.626, abs=0.01)


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_formulas_of_the_kinds_cross_where_algebra_says(width, kernel):
    dims = Dimensions(width=width, kernel=kernel, heads=4, window=16)
    rows = list_crossings([], KINDS, dict.fromkeys(KINDS, dims))
    assert all(row["one"] == "attention" and row["batch"] is row["pass"] is None for row in rows)
    textbook = {row["other"]: row["n"] for row in rows if row["of"] == "textbook"}
    assert textbook == {"conv": kernel * width, "rnn": width, "gru": width, "windowed": 16, "linear": width}
    # 8·n·d² + 4·n²·d against a·n·d²: n = (a − 8)·d/4
    operations = {row["other"]: row["n"] for row in rows if row["of"] == "operations"}
    conv = (2 * kernel - 8) * width / 4
    assert operations == {"conv": conv if conv > 0 else None, "rnn": None, "gru": width, "linear": width / 4}
    cheaper = {row["other"]: row["cheaper"] for row in rows if row["of"] == "operations"}
    always = {"conv": "attention" if conv > 0 else "conv", "rnn": "rnn", "gru": "attention", "linear": "attention"}
    assert cheaper == always


def test_widths_of_their_own_are_reckoned_with():
    shapes = {name: Dimensions(width=32 if name == "gru" else 64) for name in KINDS}
    found = {row["of"]: row for row in list_crossings([], KINDS, shapes) if row["other"] == "gru"}
    # n²·64 against n·32²
    assert found["textbook"]["n"] == 16.0
    # 12·32² is less than 8·64²
    assert (found["operations"]["n"], found["operations"]["cheaper"]) == (None, "gru")


def test_the_table_as_printed_has_the_powers_of_the_kind():
    for kind in KINDS.values():
        printed = {part[0]: 2 if part.endswith("²") else 1 for part in kind.textbook[0].split("·")}
        assert {letter: printed[letter] for letter in kind.powers} == dict(kind.powers)
        assert set(printed) - set(kind.powers) <= {"w"}


def measure(kind: str, n: int, seconds: float, batch: int = 1, size: int = 1) -> dict[str, object]:
    return {"kind": kind, "n": n, "batch": batch, "pass": "forward", "seconds": seconds, "bytes": size}


def test_measured_curves_cross_by_batch_over_the_lengths_both_have():
    rows = [measure("attention", n, n**2, batch) for n in LENGTHS for batch in (1, 16)]
    rows += [measure("gru", n, 90 * n) for n in LENGTHS]
    # longer ones were skipped
    rows += [measure("gru", n, 90 * n, 16) for n in (32, 64)]
    found = {(row["batch"], row["of"]): row for row in list_crossings(rows, KINDS, dict.fromkeys(KINDS, Dimensions()))}
    assert found[1, "seconds"]["n"] == pytest.approx(90)
    assert found[1, "seconds"]["cheaper"] == "attention"
    assert (found[16, "seconds"]["n"], found[16, "seconds"]["cheaper"]) == (None, "attention")
    assert (found[1, "bytes"]["n"], found[1, "bytes"]["cheaper"]) == (None, None)
    # who was not measured does not cross
    assert not [
        row
        for row in list_crossings(rows, KINDS, dict.fromkeys(KINDS, Dimensions()))
        if row["other"] == "conv" and row["batch"]
    ]


def test_without_attention_there_is_nothing_to_cross():
    kinds = {"gru": KINDS["gru"]}
    assert list_crossings([measure("gru", 4, 1.0)], kinds, {"gru": Dimensions()}) == []


def cross(other: str, n: float | None, cheaper: str | None) -> dict[str, object]:
    place = {"batch": 1, "pass": "forward", "of": "seconds"}
    return {"one": ATTENTION.name, "other": other, **place, "n": n, "cheaper": cheaper, "count": 1}


@pytest.mark.parametrize(
    ("crossings", "expected"),
    [
        # it leads until the first of the others is cheaper
        ([cross("rnn", 300.0, "attention"), cross("gru", 90.0, "attention")], (True, None, 90.0, "gru")),
        # and from where the last of those that were is dearer
        ([cross("rnn", 50.0, "rnn"), cross("gru", 90.0, "attention")], (True, 50.0, 90.0, "gru")),
        ([cross("rnn", 50.0, "rnn"), cross("gru", 20.0, "gru")], (True, 50.0, None, None)),
        ([cross("rnn", None, "attention"), cross("gru", None, None)], (True, None, None, None)),
        # one that is always cheaper, or a gap that closes before it opens
        ([cross("rnn", None, "rnn"), cross("gru", 90.0, "attention")], (False, None, None, "rnn")),
        ([cross("rnn", 99.0, "rnn"), cross("gru", 90.0, "attention")], (False, None, None, "rnn")),
    ],
)
def test_the_lead_is_where_attention_is_cheaper_than_all(crossings, expected):
    (lead,) = list_leads(crossings)
    assert tuple(lead[key] for key in ("is_ever", "from", "to", "rival")) == expected
    assert (lead["batch"], lead["pass"], lead["of"]) == (1, "forward", "seconds")
