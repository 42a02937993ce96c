"""Power laws as two other libraries have them; crossings of curves and formulas whose crossing is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from regard import RegardError
from regard.compare.kinds import ATTENTION, KINDS
from regard.compare.meters.curves import Crossing, find_crossing, fit_power, list_crossings, list_leads, solve_crossing
from regard.compare.settings import Dimensions

N = [8, 16, 24, 64, 100]


def scatter(count, seed=0):
    return np.exp(np.random.default_rng(seed).normal(0, 0.1, count))


def test_one_axis_is_the_line_of_scipy():
    values = 5 * np.array(N) ** 1.7 * scatter(len(N))
    line = stats.linregress(np.log(N), np.log(values))
    end = line.stderr * stats.t.ppf(0.975, len(N) - 2)
    fit = fit_power(values, n=N)
    assert fit.exponents["n"] == pytest.approx(line.slope, rel=1e-12)
    assert fit.intervals["n"] == pytest.approx([line.slope - end, line.slope + end], rel=1e-10)
    assert fit.points == 5


def test_many_axes_are_the_regression_of_statsmodels():
    n, d, k = (x.ravel() for x in np.meshgrid(N, [16, 32, 65], [3, 5, 7]))
    values = 2 * n**1.1 * d**2.2 * k**0.4 * scatter(n.size)
    told = sm.OLS(np.log(values), sm.add_constant(np.log(np.stack([n, d, k], 1)))).fit()
    fit = fit_power(values, n=n, d=d, k=k)
    assert list(fit.exponents.values()) == pytest.approx(told.params[1:], rel=1e-10)
    assert np.array(list(fit.intervals.values())) == pytest.approx(told.conf_int(0.05)[1:], rel=1e-9)


def test_intervals_hold_the_truth_as_often_as_they_say():
    held = 0
    for seed in range(400):
        lo, hi = fit_power(np.array(N) ** 1.5 * scatter(len(N), seed), n=N).intervals["n"]
        held += lo <= 1.5 <= hi
    assert 0.92 < held / 400 < 0.98


@pytest.mark.parametrize("power", [1, 2, 3])
def test_a_law_that_is_met_exactly_has_intervals_without_width(power):
    fit = fit_power([10**9 * n**power for n in N], n=N)
    assert fit.exponents["n"] == pytest.approx(power, abs=1e-12)
    assert fit.intervals["n"] == [fit.exponents["n"]] * 2


def test_scatter_that_is_small_is_still_scatter():
    lo, hi = fit_power(np.array(N) ** 2 * (1 + 1e-9 * (scatter(5) - 1)), n=N).intervals["n"]
    assert 1e-12 < hi - lo < 1e-8


@pytest.mark.parametrize("wrong", [0, float("nan"), float("inf")])
def test_what_has_no_logarithm_is_named(wrong):
    with pytest.raises(RegardError) as error:
        fit_power([1, wrong, 3], n=[1, 2, 3])
    assert str(error.value) == f"fit_power values must be above zero and finite to have a logarithm, got {wrong}."


# --- crossings --------------------------------------------------------------------------------------------------------

LENGTHS = (32, 64, 128, 256, 512, 1024)


@pytest.mark.parametrize("at", [40.0, 64.0, 100.0, 777.7, 1000.0])
def test_power_laws_cross_where_they_do(at):
    # c·n² against c·at·n
    one, other = [3e-6 * n**2 for n in LENGTHS], [3e-6 * at * n for n in LENGTHS]
    found = find_crossing(LENGTHS, one, other)
    assert found.turns == (pytest.approx(at, rel=1e-9),)
    assert found.cheaper == "one"
    swapped = find_crossing(LENGTHS, other, one)
    assert swapped.turns == (pytest.approx(at, rel=1e-9),)
    assert swapped.cheaper == "other"


def test_the_order_of_the_lengths_does_not_matter():
    one, other = [n**2 for n in LENGTHS], [100 * n for n in LENGTHS]
    assert find_crossing(LENGTHS[::-1], one[::-1], other[::-1]) == find_crossing(LENGTHS, one, other)


def test_without_a_crossing_in_range_there_is_none():
    low, high = [n**2 for n in LENGTHS], [5000 * n for n in LENGTHS]
    assert find_crossing(LENGTHS, low, high) == Crossing((), "one")
    assert find_crossing(LENGTHS, high, low) == Crossing((), "other")
    assert find_crossing([64], [1], [2]) == Crossing((), "one")
    assert find_crossing([], [], []) == Crossing((), None)


def test_to_touch_is_not_to_cross():
    assert find_crossing([1, 2, 3], [2, 2, 2], [1, 2, 1]) == Crossing((), "other")
    assert find_crossing([1, 2, 3], [1, 2, 2], [2, 2, 3]) == Crossing((), "one")
    # equal at an end is on neither side
    assert find_crossing([1, 2, 3], [2, 3, 4], [2, 2, 2]) == Crossing((), "other")
    assert find_crossing([1, 2, 3], [5, 5, 5], [5, 5, 5]) == Crossing((), None)


def test_equal_at_a_length_and_then_across_is_a_crossing_there():
    found = find_crossing([1, 2, 4, 8], [1, 2, 2, 9], [2, 2, 2, 2])
    assert found.turns == (pytest.approx(2),)
    assert found.cheaper == "one"


def test_all_of_several_crossings_are_told():
    found = find_crossing([1, 10, 100, 1000], [1, 4, 1, 8], [2, 2, 2, 2])
    # from half as dear to twice is half of the way; from half as dear at 100 to four times at 1,000 a third of it
    assert found.turns == pytest.approx((10**0.5, 10**1.5, 100 * 10 ** (1 / 3)))
    assert found.cheaper == "one"
    first, second, third = found.turns
    assert found.list_spans() == [[None, first], [second, third]]
    assert Crossing(found.turns, "other").list_spans() == [[first, second], [third, None]]
    assert [Crossing((), name).list_spans() for name in ("one", "other", None)] == [[[None, None]], [], []]


@pytest.mark.parametrize("wrong", [0, math.nan])
def test_what_is_no_curve_is_named(wrong):
    with pytest.raises(RegardError, match=f"^find_crossing other must be above zero and finite, got {wrong}.$"):
        find_crossing([1, 2], [1, 2], [1, wrong])


@pytest.mark.parametrize(("square", "line", "other"), [(4, 8, 12), (4, 8, 13), (1, 0, 777), (7, 3, 10**7), (2, 5, 6)])
def test_formulas_are_solved_exactly(square, line, other):
    found = solve_crossing(lambda n: square * n * n + line * n, lambda n: other * n)
    root = (other - line) / square
    expected = Crossing((root,), "one") if root >= 1 else Crossing((), "other")
    assert found == expected


def test_formulas_that_never_cross_or_at_once_say_who_is_cheaper():
    assert solve_crossing(lambda n: 2 * n, lambda n: 3 * n) == Crossing((), "one")
    assert solve_crossing(lambda n: 4 * n * n, lambda n: n) == Crossing((), "other")
    assert solve_crossing(lambda n: 5 * n, lambda n: 5 * n) == Crossing((), None)
    assert solve_crossing(lambda n: n * n, lambda n: n) == Crossing((1.0,), "one")
    assert solve_crossing(lambda n: n, lambda n: n * n) == Crossing((1.0,), "other")


def test_other_formulas_are_met_between_whole_numbers():
    found = solve_crossing(lambda n: n**3, lambda n: 1000 * n + 7)
    assert found.turns == (pytest.approx(31.626, abs=0.01),)


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_formulas_of_the_kinds_cross_where_algebra_says(width, kernel):
    dims = Dimensions(width=width, kernel=kernel, heads=4, window=16)
    rows = list_crossings([], KINDS, dict.fromkeys(KINDS, dims))
    assert all(row["one"] == "attention" and row["batch"] is row["pass"] is None for row in rows)
    textbook = {row["other"]: row["spans"] for row in rows if row["of"] == "textbook"}
    ends = {"conv": kernel * width, "rnn": width, "gru": width, "windowed": 16, "linear": width}
    assert textbook == {name: [[None, end]] for name, end in ends.items()}
    # 8·n·d² + 4·n²·d against a·n·d²: n = (a − 8)·d/4
    operations = {row["other"]: row["spans"] for row in rows if row["of"] == "operations"}
    conv = (2 * kernel - 8) * width / 4
    below = {"gru": [[None, width]], "linear": [[None, width / 4]]}
    assert operations == {"conv": [[None, conv]] if conv > 0 else [], "rnn": [], **below}


def test_widths_of_their_own_are_reckoned_with():
    shapes = {name: Dimensions(width=32 if name == "gru" else 64) for name in KINDS}
    found = {row["of"]: row for row in list_crossings([], KINDS, shapes) if row["other"] == "gru"}
    # n²·64 against n·32²
    assert found["textbook"]["spans"] == [[None, 16.0]]
    # 12·32² is less than 8·64²
    assert found["operations"]["spans"] == []


def test_a_table_that_has_more_than_letters_crosses_nowhere():
    kinds = {"attention": ATTENTION, "fft": replace(KINDS["linear"], name="fft", textbook=("n·log n·d", "1", "1"))}
    rows = list_crossings([], kinds, dict.fromkeys(kinds, Dimensions()))
    assert [row["of"] for row in rows] == ["operations"]


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
    assert found[1, "seconds"]["spans"] == [[None, pytest.approx(90)]]
    assert found[16, "seconds"]["spans"] == [[None, None]]
    assert (found[1, "bytes"]["spans"], found[1, "bytes"]["is_equal"]) == ([], True)
    assert not found[1, "seconds"]["is_equal"]
    # who was not measured does not cross
    found = list_crossings(rows, KINDS, dict.fromkeys(KINDS, Dimensions()))
    assert not [row for row in found if row["other"] == "conv" and row["batch"]]


def test_without_attention_there_is_nothing_to_cross():
    kinds = {"gru": KINDS["gru"]}
    assert list_crossings([measure("gru", 4, 1.0)], kinds, {"gru": Dimensions()}) == []


def cross(other: str, *spans: tuple[float | None, float | None], is_equal: bool = False) -> dict[str, object]:
    place = {"batch": 1, "pass": "forward", "of": "seconds"}
    return {"one": ATTENTION.name, "other": other, **place, "is_equal": is_equal, "spans": [list(x) for x in spans]}


@pytest.mark.parametrize(
    ("crossings", "expected"),
    [
        # it leads until the first of the others is cheaper
        ([cross("rnn", (None, 300.0)), cross("gru", (None, 90.0))], [[None, 90.0]]),
        # and from where the last of those that were is dearer
        ([cross("rnn", (50.0, None)), cross("gru", (None, 90.0))], [[50.0, 90.0]]),
        ([cross("rnn", (50.0, None)), cross("gru", (20.0, None))], [[50.0, None]]),
        # what is the same is no rival
        ([cross("rnn", (None, None)), cross("gru", is_equal=True)], [[None, None]]),
        # one that is always cheaper, or a gap that closes before it opens
        ([cross("rnn"), cross("gru", (None, 90.0))], []),
        ([cross("rnn", (99.0, None)), cross("gru", (None, 90.0))], []),
        # twice ahead of one
        ([cross("rnn", (None, 9.0), (20.0, 99.0)), cross("gru", (4.0, 50.0))], [[4.0, 9.0], [20.0, 50.0]]),
    ],
)
def test_the_lead_is_where_attention_is_cheaper_than_all(crossings, expected):
    (lead,) = list_leads(crossings)
    assert lead == {"batch": 1, "pass": "forward", "of": "seconds", "spans": expected}
