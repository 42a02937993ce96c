"""ReLU, sigmoid and sum: weights that a line of Python gives."""

import math

import pytest
import torch

from regard.core import Weigh
from regard.weigh import Relu, Sigmoid, Sum
from tests.terms import cotangent
from tests.tolerances import assert_close

SCORES = torch.tensor([[-2.0, 0.0, 0.5, 3.0], [-1.0, -1.0, -2.0, -0.5]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("weigh", "formula"),
    [
        (Relu(), lambda s: max(s, 0.0)),
        (Relu(scale=0.25), lambda s: 0.25 * max(s, 0.0)),
        (Relu(power=2), lambda s: max(s, 0.0) ** 2),
        (Relu(power=3, scale=2.0), lambda s: 2.0 * max(s, 0.0) ** 3),
        (Sigmoid(), lambda s: 1 / (1 + math.exp(-s))),
        (Sigmoid(shift=-math.log(4)), lambda s: 1 / (1 + math.exp(math.log(4) - s))),
    ],
    ids=lambda x: repr(x) if isinstance(x, Weigh) else "",
)
def test_each_score_has_its_weight(weigh, formula):
    expected = torch.tensor([[formula(s) for s in row] for row in SCORES.tolist()], dtype=torch.float64)
    assert_close(weigh(SCORES), expected)
    allowed = torch.tensor([[True, False, True, True], [False, False, False, False]])
    assert_close(weigh(SCORES, allowed), expected * allowed)


@pytest.mark.parametrize("weigh", [Relu(), Relu(power=2), Sigmoid(), Sum()], ids=repr)
def test_what_lies_under_the_mask_gives_no_gradient(weigh):
    # e^1000 overflows: filled in too late, it would come back as 0 × inf
    scores = torch.tensor([[1.0, 1e3, 2.0], [torch.inf, torch.nan, 1.0]], dtype=torch.float64, requires_grad=True)
    weights = weigh(scores, torch.tensor([[True, False, True], [False, False, True]]))
    (grad,) = torch.autograd.grad(weights, scores, cotangent(weights))
    assert grad.isfinite().all()
    assert (grad[[0, 1, 1], [1, 0, 1]] == 0).all()


def test_sigmoid_far_out_neither_overflows_nor_loses_its_tail():
    weights = Sigmoid()(torch.tensor([[-700.0, 700.0, -40.0]], dtype=torch.float64))
    assert weights[0].tolist() == pytest.approx([math.exp(-700), 1.0, math.exp(-40)], rel=1e-12)


def test_sum_is_the_share_of_the_row():
    totals = torch.tensor([[1.5], [-4.5]], dtype=torch.float64)
    assert_close(Sum()(SCORES), SCORES / totals)


def test_a_row_that_sums_to_zero_gives_zeros():
    scores = torch.tensor([[1.0, -1.0], [0.0, 0.0], [1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    weights = Sum()(scores)
    assert weights.tolist() == [[0, 0], [0, 0], [0.25, 0.75]]
    (grad,) = torch.autograd.grad(weights, scores, cotangent(weights))
    assert grad[:2].tolist() == [[0, 0], [0, 0]]
