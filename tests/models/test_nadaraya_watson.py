"""NadarayaWatson against scikit-learn's checks, statsmodels and loops."""

import subprocess
import sys
import time

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from regard.core import RegardError
from regard.extras import install
from regard.models import NadarayaWatson
from tests.wide import ALL, thin


def draw(seed: int, n: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """The textbook's task."""
    noise = torch.Generator().manual_seed(seed)
    x = (5 * torch.rand(n, 1, generator=noise, dtype=torch.float64)).sort(0).values
    y = truth(x.numpy()) + 0.5 * torch.randn(n, 1, generator=noise, dtype=torch.float64).numpy()
    return x.numpy(), y[:, 0]


def truth(x: np.ndarray) -> np.ndarray:
    return 2 * np.sin(x) + x**0.8


def draw_features(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Three features of different scales, of which the last means nothing."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 3))
    return x * [1, 10, 1], np.sin(3 * x[:, 0]) + x[:, 1] + 0.1 * rng.standard_normal(n)


def leave_one_out(x, y, widths, weight=None) -> float:
    """By a loop."""
    weight = np.ones(len(x)) if weight is None else weight
    errors = []
    for at in range(len(x)):
        rest = np.arange(len(x)) != at
        kernel = weight[rest] * np.exp(-0.5 * (((x[rest] - x[at]) * widths) ** 2).sum(-1))
        errors.append(((kernel @ y[rest]) / kernel.sum() - y[at]) ** 2)
    return np.average(np.array(errors), axis=0, weights=weight).mean()


OTHERS = [NadarayaWatson(per_feature=True), NadarayaWatson("learn"), NadarayaWatson("learn", per_feature=True)]


@parametrize_with_checks([NadarayaWatson(), *([NadarayaWatson(2.0), *OTHERS] if ALL else [])])
def test_scikit_learn(estimator, check):
    check(estimator)


# statsmodels announces a new default for its random numbers; it draws none here
@pytest.mark.filterwarnings("ignore::FutureWarning")
class TestStatsmodels:
    @pytest.fixture
    def kernel_reg(self):
        return pytest.importorskip("statsmodels.nonparametric.kernel_regression").KernelReg

    def test_one_feature(self, kernel_reg):
        x, y = draw(3)
        model = NadarayaWatson(2.5).fit(x, y)
        theirs = kernel_reg(y, x, "c", reg_type="lc", bw=[1 / 2.5])
        points = np.linspace(0, 5, 31)[:, None]
        np.testing.assert_allclose(model.predict(points), theirs.fit(points)[0], rtol=1e-12)
        assert model.loo_error_ == pytest.approx(theirs.cv_loo(theirs.bw, theirs.est["lc"]), rel=1e-12)

    @pytest.mark.parametrize("width", [1.5, [1.5, 0.3, 0.8]])
    def test_several_features(self, kernel_reg, width):
        x, y = draw_features(0)
        model = NadarayaWatson(width).fit(x, y)
        theirs = kernel_reg(y, x, "ccc", reg_type="lc", bw=1 / np.broadcast_to(width, 3))
        np.testing.assert_allclose(model.predict(x[:11]), theirs.fit(x[:11])[0], rtol=1e-10)
        assert model.loo_error_ == pytest.approx(theirs.cv_loo(theirs.bw, theirs.est["lc"]), rel=1e-10)

    def test_the_learned_width(self, kernel_reg):
        x, y = draw(0)
        model = NadarayaWatson("learn").fit(x, y)
        theirs = kernel_reg(y, x, "c", reg_type="lc", bw="cv_ls")
        # its simplex search stops at four digits
        assert 1 / model.width_ == pytest.approx(theirs.bw[0], rel=1e-3)
        assert model.loo_error_ <= theirs.cv_loo(theirs.bw, theirs.est["lc"]) + 1e-9

    def test_learned_widths(self, kernel_reg):
        x, y = draw_features(0, n=40)
        model = NadarayaWatson("learn", per_feature=True).fit(x, y)
        theirs = kernel_reg(y, x, "ccc", reg_type="lc", bw="cv_ls")
        assert model.loo_error_ <= theirs.cv_loo(theirs.bw, theirs.est["lc"]) * (1 + 1e-4)


def test_the_textbooks_task(record_property):
    points = np.arange(50)[:, None] * 0.1
    errors, start = [], time.perf_counter()
    seeds = range(200) if ALL else range(60)
    for seed in seeds:
        x, y = draw(seed)
        found = NadarayaWatson("learn").fit(x, y).predict(points)
        errors.append(np.mean((found - truth(points[:, 0])) ** 2))
    seconds = time.perf_counter() - start
    print(f"mean squared error {np.mean(errors):.4f}, {1000 * seconds / len(seeds):.0f} ms a fit")
    record_property("error", float(np.mean(errors)))
    assert np.mean(errors) <= 0.07


# the last two have their lowest valley between two points of the coarse grid, where another looks lower
@pytest.mark.parametrize(("seed", "n"), [*((seed, 20) for seed in thin(range(10), 5)), (161, 20), (30, 5), (114, 10)])
def test_no_width_of_a_fine_grid_is_better(seed, n):
    x, y = draw(seed, n)
    model = NadarayaWatson("learn").fit(x, y)
    with np.errstate(invalid="ignore"):
        around = [leave_one_out(x, y, width) for width in np.logspace(-2, 4, 400)]
    assert model.loo_error_ <= np.nanmin(around) + 1e-9


def test_the_width_of_many_samples_is_a_minimum_too():
    x, y = draw(0, n=1500)
    model = NadarayaWatson("learn").fit(x, y)
    around = [NadarayaWatson(model.width_ * by).fit(x, y).loo_error_ for by in np.logspace(-1, 1, 15)]
    # the middle of the row is the width itself
    assert np.argmin(around) == 7
    assert model.loo_error_ == around[7]


@pytest.mark.thin(3)
@pytest.mark.parametrize("scale", [1e-100, 1e-3, 1e6, 1e100])
@pytest.mark.parametrize("per_feature", [False, True])
def test_units_do_not_matter(scale, per_feature):
    x, y = draw_features(1, n=30)
    for width in (None, "learn"):
        model = NadarayaWatson(width, per_feature=per_feature)
        one, other = clone(model).fit(x, y), clone(model).fit(scale * x, 1e-4 * y)
        np.testing.assert_allclose(other.predict(scale * x), 1e-4 * one.predict(x), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(scale * other.width_, one.width_, rtol=1e-3)


def test_scotts_rule():
    x, y = draw_features(2)
    np.testing.assert_allclose(NadarayaWatson(per_feature=True).fit(x, y).width_, 60 ** (1 / 7) / x.std(0), rtol=1e-12)
    assert NadarayaWatson().fit(x, y).width_ == pytest.approx(60 ** (1 / 7) / np.sqrt(x.var(0).mean()), rel=1e-12)


def test_per_feature_widths_find_what_means_nothing():
    x, y = draw_features(0, n=120)
    shared = NadarayaWatson("learn").fit(x, y)
    model = NadarayaWatson("learn", per_feature=True).fit(x, y)
    assert model.loo_error_ < 0.5 * shared.loo_error_
    assert model.width_[2] < 0.1 * model.width_[0]


def test_a_constant_feature_is_ignored():
    x, y = draw(0)
    wide = np.column_stack([x, np.full(len(x), 0.1)])
    for width in (None, "learn"):
        model = NadarayaWatson(width, per_feature=True).fit(wide, y)
        assert model.width_[1] == 0
    np.testing.assert_allclose(model.predict(wide), NadarayaWatson("learn").fit(x, y).predict(x), rtol=1e-5)
    assert NadarayaWatson("learn").fit(wide[:, 1:], y).predict(wide[:1, 1:]) == pytest.approx(y.mean())


def test_weights_are_copies():
    x, y = draw(1, n=20)
    count = np.random.default_rng(0).integers(0, 4, 20)
    for width in (None, 3.0, "learn"):
        one = NadarayaWatson(width).fit(x, y, sample_weight=count)
        other = NadarayaWatson(width).fit(x.repeat(count, 0), y.repeat(count))
        assert one.width_ == pytest.approx(other.width_, rel=1e-6)
        assert one.loo_error_ == pytest.approx(other.loo_error_, rel=1e-9)
        np.testing.assert_allclose(one.predict(x), other.predict(x), rtol=1e-6)


def test_a_weight_below_one_is_left_out_whole():
    x, y = draw(2, n=15)
    weight = np.random.default_rng(1).uniform(0.1, 1, 15)
    model = NadarayaWatson(2.0).fit(x, y, sample_weight=weight)
    assert model.loo_error_ == pytest.approx(leave_one_out(x, y, 2.0, weight), rel=1e-12)
    kernel = weight * np.exp(-0.5 * ((x - x.T) * 2.0) ** 2)
    np.testing.assert_allclose(model.predict(x), kernel @ y / kernel.sum(1), rtol=1e-12)


def test_weights_for_a_look():
    x, y = draw(4, n=11)
    weight = np.ones(11)
    weight[3] = 0
    model = NadarayaWatson(2.0).fit(x, y, sample_weight=weight)
    weights = model.weights(x[:5])
    assert weights.shape == (5, 11)
    assert (weights[:, 3] == 0).all()
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(weights @ y, model.predict(x[:5]), rtol=1e-12)


def test_outputs_by_the_dozen():
    x, y = draw_features(3, n=30)
    both = np.column_stack([y, y**2])
    model = NadarayaWatson(1.2).fit(x, both)
    assert model.predict(x).shape == (30, 2)
    for column in range(2):
        single = NadarayaWatson(1.2).fit(x, both[:, column])
        np.testing.assert_allclose(model.predict(x)[:, column], single.predict(x), rtol=1e-12)
    assert model.loo_error_ == pytest.approx(leave_one_out(x, both, 1.2), rel=1e-12)


def test_far_away_the_nearest_wins():
    x, y = draw(5)
    model = NadarayaWatson("learn").fit(x, y)
    np.testing.assert_allclose(model.predict([[-1e4], [1e4]]), [y[0], y[-1]], rtol=1e-12)


def test_the_search_may_look_at_some():
    x, y = draw(6, n=700)
    whole = NadarayaWatson("learn").fit(x, y)
    some = NadarayaWatson("learn", max_fit_samples=300)
    assert clone(some).fit(x, y).width_ == some.fit(x, y).width_ != whole.width_
    assert some.width_ == pytest.approx(whole.width_, rel=0.5)
    # each of the drawn is predicted from all others, at any width
    drawn = np.random.RandomState(0).permutation(700)[:300]
    apart = 0.5 * ((x[drawn] - x.T) * some.width_) ** 2
    apart[np.arange(300), drawn] = np.inf
    kernel = np.exp(-apart)
    expected = np.mean((kernel @ y / kernel.sum(1) - y[drawn]) ** 2)
    assert some.loo_error_ == pytest.approx(expected, rel=1e-10)


def test_float32_is_near():
    x, y = draw(7)
    one, other = NadarayaWatson("learn").fit(x, y), NadarayaWatson("learn", dtype="float32").fit(x, y)
    np.testing.assert_allclose(other.predict(x), one.predict(x), rtol=1e-2, atol=1e-2)


def test_later_changes_of_the_arrays_do_not_matter():
    x, y = draw(8)
    model = NadarayaWatson(1.0).fit(x, y)
    before = model.predict(x[:3].copy())
    points = x[:3].copy()
    x[:], y[:] = 0, 0
    assert np.array_equal(model.predict(points), before)


def test_a_second_fit_forgets_the_first():
    x, y = draw(9)
    model = NadarayaWatson(1.0).fit(x, y)
    first = model.loo_error_
    assert model.fit(x, 2 * y).loo_error_ == pytest.approx(4 * first)


def test_the_error_needs_a_fit():
    with pytest.raises(NotFittedError):
        _ = NadarayaWatson().loo_error_


X, Y = np.arange(6.0).reshape(3, 2), np.arange(3.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": "scott"}, "NadarayaWatson width must be None, \"learn\" or a number, got 'scott'."),
        ({"width": -1.0}, "NadarayaWatson width must be finite and at least 0, got -1.0."),
        ({"width": True}, "NadarayaWatson width must be finite and at least 0, got True."),
        (
            {"width": [1.0, 2.0, 3.0]},
            "NadarayaWatson width must be one number or one for each of 2 features, got shape (3,).",
        ),
        ({"dtype": "float16"}, 'NadarayaWatson dtype must be "float64" or "float32", got \'float16\'.'),
        ({"max_fit_samples": 0}, "NadarayaWatson max_fit_samples must be None or at least 1, got 0."),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(RegardError) as caught:
        NadarayaWatson(**options).fit(X, Y)
    assert str(caught.value) == message


def test_one_sample():
    assert NadarayaWatson().fit(X[:1], Y[:1]).predict(X).tolist() == [0, 0, 0]
    for fail in (
        lambda: NadarayaWatson("learn").fit(X[:1], Y[:1]),
        lambda: NadarayaWatson(1.0).fit(X[:1], Y[:1]).loo_error_,
    ):
        with pytest.raises(RegardError) as caught:
            fail()
        assert str(caught.value) == (
            'NadarayaWatson width="learn" and loo_error_ predict each sample from others, got n_samples=1:'
            " give a width, or more samples."
        )
    # two of a kind
    assert NadarayaWatson("learn").fit(X[:1], Y[1:2], sample_weight=[2]).loo_error_ == 0


def test_weights_of_nothing():
    with pytest.raises(RegardError) as caught:
        NadarayaWatson().fit(X, Y, sample_weight=np.zeros(3))
    assert str(caught.value) == (
        "NadarayaWatson sample_weight is 3 zeros. Sample weights must contain at least one non-zero number."
    )


def test_without_scikit_learn():
    code = """
import sys
sys.modules["sklearn"] = None
import regard, regard.models
assert "NadarayaWatson" in dir(regard.models)
try:
    regard.models.NadarayaWatson
except regard.RegardError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"NadarayaWatson needs scikit-learn 1.6 or later: {install('learn')}.\n"


def test_importing_models_imports_no_scikit_learn():
    code = "import sys, regard.models; print('sklearn' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
    import regard.models

    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        _ = regard.models.Nobody
