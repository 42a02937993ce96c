"""Sparse softmaxes against the authors' own package, forward and backward."""

import entmax
import mpmath
import pytest
import torch

from regard.weigh import Entmax, Softmax, Sparsemax
from tests.terms import cotangent
from tests.tolerances import assert_close


def bisect(alpha):
    # the package's defaults stop at 50 halvings and float32's precision
    return lambda x: entmax.entmax_bisect(x, alpha, dim=-1, n_iter=100)


PAIRS = [
    (Sparsemax(), entmax.sparsemax),
    (Entmax(alpha=2.0), entmax.sparsemax),
    (Entmax(), entmax.entmax15),
    (Entmax(alpha=1.2), bisect(1.2)),
    (Entmax(alpha=1.8), bisect(1.8)),
    (Entmax(alpha=2.5), bisect(2.5)),
    (Entmax(alpha=4.0), bisect(4.0)),
]
against_the_package = pytest.mark.parametrize(("weigh", "oracle"), PAIRS, ids=[repr(weigh) for weigh, _ in PAIRS])

noise = torch.Generator().manual_seed(0)
SCORES = {
    "ordinary": torch.randn(4, 5, 7, generator=noise, dtype=torch.float64),
    "wide": 30 * torch.randn(3, 200, generator=noise, dtype=torch.float64),
    "narrow": 1e-3 * torch.randn(3, 200, generator=noise, dtype=torch.float64),
    "far from zero": 1e4 + torch.randn(3, 11, generator=noise, dtype=torch.float64),
    "one key": torch.tensor([[3.0]], dtype=torch.float64),
}


@against_the_package
@pytest.mark.parametrize("kind", SCORES)
def test_weights_are_the_packages(weigh, oracle, kind):
    scores = SCORES[kind].clone().requires_grad_()
    expected = oracle(scores)
    weights = weigh(scores)
    assert_close(weights, expected)
    (grad,) = torch.autograd.grad(weights, scores, cotangent(weights))
    assert_close(grad, torch.autograd.grad(expected, scores, cotangent(expected))[0], "gradient")


@against_the_package
def test_hidden_keys_are_as_if_absent(weigh, oracle):
    scores = SCORES["ordinary"].clone().requires_grad_()
    allowed = torch.tensor([True, False, True, True, False, True, False])
    weights = weigh(scores, allowed.expand(scores.shape))
    assert (weights[..., ~allowed] == 0).all()
    assert_close(weights[..., allowed], oracle(scores[..., allowed]))
    (grad,) = torch.autograd.grad(weights, scores, cotangent(weights))
    assert (grad[..., ~allowed] == 0).all()


@pytest.mark.parametrize("weigh", [Sparsemax(), Entmax(), Entmax(alpha=1.3), Entmax(alpha=3.0)], ids=repr)
class TestProperties:
    def test_rows_sum_to_one(self, weigh):
        for scores in SCORES.values():
            assert_close(weigh(scores).sum(-1), torch.ones(scores.shape[:-1], dtype=torch.float64))

    def test_rows_with_nothing_are_zero(self, weigh):
        scores = torch.randn(2, 3, dtype=torch.float64).requires_grad_()
        weights = weigh(scores, torch.tensor([[True, True, False], [False, False, False]]))
        assert weights[1].tolist() == [0, 0, 0]
        (grad,) = torch.autograd.grad(weights, scores, cotangent(weights))
        assert grad[1].tolist() == [0, 0, 0]

    def test_low_scores_weigh_exactly_nothing(self, weigh):
        weights = weigh(torch.tensor([[5.0, 4.9, -5.0, -6.0]], dtype=torch.float64))
        assert weights[0, 2:].tolist() == [0, 0]
        assert (weights[0, :2] > 0).all()

    def test_equal_scores_share(self, weigh):
        scores = torch.full((1, 8), 0.3, dtype=torch.float64)
        assert_close(weigh(scores), torch.full_like(scores, 1 / 8))

    def test_float32_keeps_its_digits(self, weigh):
        for scores in (SCORES["ordinary"], SCORES["narrow"]):
            single = scores.float()
            assert_close(weigh(single), weigh(single.double()).float())


def test_alpha_near_one_is_near_softmax():
    scores = SCORES["ordinary"]
    assert (Entmax(alpha=1.001)(scores) - Softmax()(scores)).abs().max() < 2e-3


def solve_exactly(scores, alpha):
    """Weights in sixty digits, for an alpha above 2: by halving the interval of the least weight in the support."""
    with mpmath.workdps(60):
        steep = mpmath.mpf(alpha) - 1
        row = [mpmath.mpf(x) for x in scores.tolist()]
        ranked = sorted(row, reverse=True)

        def weigh(least, last, score):
            return (least**steep + steep * (score - last)) ** (1 / steep) if score >= last else mpmath.mpf(0)

        # the support: as many as leave something for the last of them
        last = max(x for x in ranked if mpmath.fsum(weigh(0, x, y) for y in ranked) < 1)
        last = min(x for x in ranked if x <= last and mpmath.fsum(weigh(0, x, y) for y in ranked) < 1)
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        for _ in range(200):
            middle = (low + high) / 2
            enough = mpmath.fsum(weigh(middle, last, y) for y in ranked) > 1
            low, high = (low, middle) if enough else (middle, high)
        return torch.tensor([float(weigh(low, last, x)) for x in row], dtype=torch.float64)


@pytest.mark.parametrize("alpha", [2.01, 3.0, 6.0, 10.0, 40.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_weights_near_the_threshold_above_an_alpha_of_two(alpha, dtype):
    noise = torch.Generator().manual_seed(1)
    for power in range(1, 8):
        # one score a little above the one that would weigh nothing beside the best
        near = -(1 - 10.0**-power) / (alpha - 1)
        row = torch.cat([torch.tensor([0.0, near]), -torch.rand(9, generator=noise) * 3 / (alpha - 1)]).to(dtype)
        exact = solve_exactly(row, alpha)
        assert (Entmax(alpha)(row[None])[0].double() - exact).abs().max() <= 2 * torch.finfo(dtype).eps
        pair = row[:2]
        assert (Entmax(alpha)(pair[None])[0].double() - solve_exactly(pair, alpha)).abs().max() <= 2 * torch.finfo(
            dtype
        ).eps


def test_gradients_near_the_threshold_above_an_alpha_of_two():
    single = torch.tensor([[0.0, -0.49995, -3.0], [0.3, 0.2999, -0.1]], requires_grad=True)
    double = single.detach().double().requires_grad_()
    found, expected = (
        torch.autograd.grad(Entmax(3.0)(x), x, torch.tensor([[1.0, 2.0, 3.0]], dtype=x.dtype).expand(2, 3))[0]
        for x in (single, double)
    )
    assert_close(found, expected.float())


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0, 3.0])
def test_what_is_no_number_shows(alpha):
    scores = torch.tensor([[torch.nan, 0.0], [torch.inf, 0.0], [-torch.inf, 0.0]], requires_grad=True)
    weights = Entmax(alpha)(scores)
    assert weights[:2].isnan().all()
    assert weights[2].tolist() == [0, 1]
    (grad,) = torch.autograd.grad(weights, scores, torch.ones_like(weights))
    assert grad[:2].isnan().all()
    assert grad[2].tolist() == [0, 0]


def test_many_equal_scores_in_float64_sum_to_one():
    # running sums round once a key
    scores = torch.full((1, 1000), 0.1, dtype=torch.float64) + torch.linspace(0, 1e-4, 1000, dtype=torch.float64)
    for weigh in (Sparsemax(), Entmax()):
        assert abs(weigh(scores).sum().item() - 1) < 1e-14
