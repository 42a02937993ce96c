"""The additive score where its quick form would overflow."""

import pytest
import torch

from regard import attend
from regard.score import Additive
from regard.score.additive import Factored, Plain, _expm1
from tests.primes import noise
from tests.terms import cotangent
from tests.tolerances import assert_all_close, assert_close
from tests.wide import wide

WEIGHT = noise(2, 3, seed=1)
LIMITS = {torch.float32: 40.0, torch.float64: 340.0}


def run(rows, weight, dtype, backend="tiled"):
    leaves = [x.detach().clone().to(dtype).requires_grad_() for x in (*rows, weight)]
    out = attend(*leaves[:3], score=Additive(leaves[3]), backend=backend)
    return out.detach(), *torch.autograd.grad(out, leaves, cotangent(out))


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("size", [1e-3, 1.0, 5.0, 19.0, 39.0, 41.0, 100.0, 339.0, 341.0, 1e3, 1e30])
def test_any_size_of_numbers_is_right(size, dtype):
    rows = [x.clamp(-1, 1) * size for x in (noise(2, 2, 5, 3, seed=2), noise(2, 2, 7, 3, seed=3))]
    # pairs that nearly cancel: there tanh is neither 1 nor −1 however large its terms
    rows[1][:, :, 0] = -rows[0][:, :, 0] + 0.1
    rows.append(noise(2, 2, 7, 3, seed=4))
    rows, weight = [x.to(dtype).double() for x in rows], WEIGHT.to(dtype).double()
    expected = run(rows, weight, torch.float64, "reference")
    found = run(rows, weight, dtype)
    assert all(x.isfinite().all() for x in found)
    names = ["output", "gradient of query", "gradient of key", "gradient of value", "gradient of weight"]
    if dtype == torch.float64:
        assert_all_close(found, expected, names)
    elif size < 20:
        # beyond, float32 cannot hold q + k to the digits that tanh near zero needs, by any formula
        assert_all_close(found, [x.float() for x in expected], names)


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("where", ["query", "key"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_quick_form_is_left_in_time(dtype, where, sign):
    rows = {"query": torch.zeros(1, 1, 5, 3, dtype=dtype), "key": torch.zeros(1, 1, 7, 3, dtype=dtype)}
    score = Additive(torch.ones(3, dtype=dtype))
    rows[where][0, 0, 2, 1] = sign * LIMITS[dtype] * 0.99
    assert type(score.prepare(**rows)[2]) is Factored
    rows[where][0, 0, 2, 1] = sign * LIMITS[dtype] * 1.01
    assert type(score.prepare(**rows)[2]) is Plain


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_takes_the_plain_form(bad):
    query = torch.zeros(1, 1, 5, 3)
    query[0, 0, 1, 1] = bad
    assert type(Additive(torch.ones(3)).prepare(query, torch.zeros(1, 1, 7, 3))[2]) is Plain


def test_other_activations_have_no_quick_form():
    query, key = torch.zeros(1, 1, 5, 3), torch.zeros(1, 1, 7, 3)
    assert type(Additive(torch.ones(3), "sigmoid").prepare(query, key)[2]) is Plain


@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.1, 1.0, 10.0, 100.0, 300.0])
def test_both_forms_agree(size):
    query, key = noise(2, 2, 5, 3, seed=5) * size, noise(2, 2, 7, 3, seed=6) * size
    query, key = query.clamp(-339, 339), key.clamp(-339, 339)
    plain, quick = Plain(WEIGHT, "tanh"), Factored(WEIGHT, is_small=size < 0.5)
    for form in (quick.fill, quick.expression):
        assert_close(form(query, key, WEIGHT), plain(query, key, WEIGHT))


@pytest.mark.parametrize("block", [1, 10, 40, 100, 10**6])
def test_any_block_size_gives_the_same(block, monkeypatch):
    query, key = noise(2, 2, 5, 3, seed=7).tanh() / 2, noise(2, 2, 7, 3, seed=8).tanh() / 2
    plain, quick = Plain(WEIGHT, "tanh"), Factored(WEIGHT, is_small=block % 4 > 0)
    grad = cotangent(torch.zeros(2, 2, 5, 7, dtype=torch.float64))
    expected, back = plain.vjp(query, key, WEIGHT)
    monkeypatch.setattr("regard.score.additive._BLOCK", block)
    scores, quick_back = quick.vjp(query, key, WEIGHT)
    assert_close(scores, expected)
    assert_all_close(quick_back(grad), back(grad), ["query", "key", "weight"])


def test_small_numbers_keep_their_digits():
    query, key = noise(1, 1, 5, 3, seed=9) * 1e-6, noise(1, 1, 7, 3, seed=10) * 1e-6
    exact = Plain(WEIGHT[:1], "tanh")(query, key, WEIGHT[:1])
    pair = Additive(WEIGHT[0].float()).prepare(query.float(), key.float())[2]
    scores = pair.fill(query.float(), key.float(), *pair.tensors)
    assert ((scores - exact).abs() <= 1e-6 * exact.abs().max()).all()


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=wide)])
def test_small_numbers_keep_their_digits_for_the_compiler(dtype, compiled):
    x = torch.logspace(-37, 0, 999, dtype=torch.float64).to(dtype)
    x = torch.cat([x, -x, x.new_tensor([0.0, 1e-40])])
    found = (torch.compile(_expm1) if compiled else _expm1)(x)
    torch.testing.assert_close(found, torch.expm1(x), rtol=4 * torch.finfo(dtype).eps, atol=0)
