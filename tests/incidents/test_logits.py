"""N4: gradients where all logits are low or high.

cuDNN's backward gave NaN there (pytorch#196678, trl#7181, cudnn-frontend#628, #1072). On any kernel that keeps one
number max + log(sum) per row, the logarithm drowns in a large maximum, and the weights made again in backward are off.
"""

import pytest
import torch

from regard import attend
from regard.score import Additive, Bilinear, Concat, Cosine, Dot, Gaussian
from regard.weigh import Softmax
from tests.incidents.plain import BACKENDS, assert_near, attend_plainly, cosines, make, run

pytestmark = pytest.mark.thin(3)

SHIFTS = [-1e4, -200.0, -100.0, -88.8, 0.0, 88.8, 200.0, 1e4]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [1, 63, 64, 65, 127, 128])
@pytest.mark.parametrize("shift", SHIFTS)
def test_shifted_logits_keep_their_gradients(shift, n, backend):
    check_shift(shift, n, backend)


def check_shift(shift, n, backend):
    # one more feature that is `shift` in the query and one in the key moves all logits alike
    query, key, value = make((1, 1, n, 5), (1, 1, n, 5), (1, 1, n, 5))
    query = torch.cat([query[..., :4], torch.full((1, 1, n, 1), shift)], -1).detach().requires_grad_()
    key = torch.cat([key[..., :4], torch.ones(1, 1, n, 1)], -1).detach().requires_grad_()
    got = run(query, key, value, score=Dot(scale=1.0), mask=torch.ones(n, n, dtype=torch.bool), backend=backend)
    wide = [x.detach().double().requires_grad_() for x in (query, key, value)]
    out = attend_plainly(*wide, scale=1.0)
    expected = [out, *torch.autograd.grad(out, wide, cosines(out))]
    # logits of 1e4 are multiples of 1e-3 in float32
    units = 64 + 8 * abs(shift)
    for name, one, two in zip(("output", "dquery", "dkey", "dvalue"), got, expected, strict=True):
        # the column that shifts collects the error of all logits, a thousand times over
        if name in ("dquery", "dkey"):
            one, two = one[..., :4], two[..., :4]
        assert_near(one, two, units, name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [1.0, 30.0, 300.0, 1000.0])
@pytest.mark.parametrize("keys", [1, 5])
def test_equal_keys_share_equally_whatever_their_size(keys, length, backend, dtype):
    check_equal_keys(keys, length, backend, dtype)


def check_equal_keys(keys, length, backend, dtype):
    # equal keys have equal scores to the last bit, so eager code is exact: weights of 1/m, values' gradients of n/m
    n, d = 3, 13
    query = torch.full((1, 1, n, d), length, dtype=dtype, requires_grad=True)
    key = torch.full((1, 1, keys, d), length, dtype=dtype, requires_grad=True)
    (value,) = make((1, 1, keys, d), dtype=dtype)
    out, _, _, dvalue = run(query, key, value, torch.ones(1, 1, n, d, dtype=dtype), backend=backend)
    assert_near(out, value.double().mean(-2, keepdim=True).expand(out.shape), units=4)
    assert_near(dvalue, torch.full_like(dvalue, n / keys), units=4, what="dvalue")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [10.0, 100.0, 1000.0])
def test_a_bias_beside_large_scores_changes_no_weight_of_one_key(length, backend):
    check_bias_of_one_key(length, backend)


def check_bias_of_one_key(length, backend):
    # torch's kernel scales and adds in one rounding forward, in two backward
    query, key, value = make((1, 1, 4, 13), (1, 1, 1, 13), (1, 1, 1, 13))
    query, key = (x.detach().mul(length).requires_grad_() for x in (query, key))
    bias = torch.randn(4, 1, generator=torch.Generator().manual_seed(1))
    out, _, _, dvalue = run(query, key, value, torch.ones(1, 1, 4, 13), bias=bias, backend=backend)
    assert_near(out, value.expand(out.shape), units=2)
    assert_near(dvalue, torch.full_like(dvalue, 4.0), units=2, what="dvalue")


WEIGHT = torch.tensor([0.3, -1.0, 0.8])
SCORES = {
    "dot": Dot(),
    "capped": Dot(cap=50.0),
    "cosine": Cosine(1e4),
    "bilinear": Bilinear(torch.eye(3)),
    "additive": Additive(WEIGHT * 1e4),
    "concat": Concat(WEIGHT, WEIGHT),
    "gaussian": Gaussian(1.0),
    "function": lambda query, key: -(query.unsqueeze(-2) - key.unsqueeze(-3)).pow(2).sum(-1),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("sink", [None, -1e30], ids=["", "sink"])
def test_backward_sees_the_scores_of_forward(score, sink, monkeypatch):
    """Whatever the score's size, the weights that backward makes again sum to one, tile by tile."""
    from regard.engine.tiles import layout

    monkeypatch.setattr(layout, "BUDGET", 40)
    query, key = (x.detach() * 1e3 for x in make((1, 2, 9, 3), (1, 2, 17, 3)))
    value = torch.ones(1, 2, 17, 3, requires_grad=True)
    weigh = Softmax(None if sink is None else torch.tensor(sink))
    out = attend(query.requires_grad_(), key, value, score=SCORES[score], weigh=weigh, backend="tiled")
    (dvalue,) = torch.autograd.grad(out, value, torch.ones_like(out))
    # each of 9 queries hands out a weight of one
    assert_near(out, torch.ones_like(out), units=8)
    assert_near(dvalue.sum(-2), torch.full((1, 2, 3), 9.0), units=8, what="sum of weights in backward")
