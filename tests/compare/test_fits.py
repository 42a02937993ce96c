"""Power laws: two other libraries' regressions say the same, and exact laws are found exactly."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from regard import RegardError
from regard.compare.measure.fits import fit_power

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
    assert fit.factor == pytest.approx(np.exp(line.intercept), rel=1e-10)
    assert fit.points == 5


def test_many_axes_are_the_regression_of_statsmodels():
    n, d, k = (x.ravel() for x in np.meshgrid(N, [16, 32, 65], [3, 5, 7]))
    values = 2 * n**1.1 * d**2.2 * k**0.4 * scatter(n.size)
    told = sm.OLS(np.log(values), sm.add_constant(np.log(np.stack([n, d, k], 1)))).fit()
    fit = fit_power(values, n=n, d=d, k=k)
    assert list(fit.exponents.values()) == pytest.approx(told.params[1:], rel=1e-10)
    assert np.array(list(fit.intervals.values())) == pytest.approx(told.conf_int(0.05)[1:], rel=1e-9)
    assert fit.factor == pytest.approx(np.exp(told.params[0]), rel=1e-9)


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


@pytest.mark.parametrize(
    ("message", "values", "axes"),
    [
        ("fit_power needs more points than its 2 unknowns, got 2: measure more.", [1, 2], {"n": [1, 2]}),
        ("fit_power n must be as many as the values: 2 against 3.", [1, 2, 3], {"n": [1, 2]}),
        ("fit_power values must be above zero and finite to have a logarithm, got 0.", [1, 0, 3], {"n": [1, 2, 3]}),
        (
            "fit_power values must be above zero and finite to have a logarithm, got nan.",
            [1, float("nan")],
            {"n": [1, 2]},
        ),
        ("fit_power n must be above zero and finite to have a logarithm, got inf.", [1, 2], {"n": [1, float("inf")]}),
        ("fit_power cannot tell n apart: each must change while the others stay.", [1, 2, 3], {"n": [4, 4, 4]}),
        (
            "fit_power cannot tell n, d apart: each must change while the others stay.",
            [1, 2, 3, 4],
            {"n": [1, 2, 4, 8], "d": [3, 6, 12, 24]},
        ),
        (
            # apart by rounding alone
            "fit_power cannot tell n, d apart: each must change while the others stay.",
            [1, 2, 3, 4],
            {"n": [3, 5, 7, 11], "d": [21, 35, 49, 77]},
        ),
    ],
)
def test_what_cannot_be_fitted_is_named(message, values, axes):
    with pytest.raises(RegardError) as error:
        fit_power(values, **axes)
    assert str(error.value) == message
