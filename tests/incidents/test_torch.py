"""Where torch's own CPU kernels are wrong: the library's answer is right, and the detour is still needed.

Each case runs torch's kernel as it is; one that finds it right is reported as a quiet canary (tests/canaries.py).
"""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from regard import RegardError, attend
from tests.incidents.plain import assert_near
from tests.wide import wide


def make_case(name):
    """Query, key, value, mask for torch, bias for the library, and the values' exact gradient (or output, for NaN)."""
    if name == "one key, bfloat16":
        # one key has a weight of one, whatever its score
        rows = [torch.full((1, 1, 1, 13), x, dtype=torch.bfloat16) for x in (1000.0, 1000.0, 1.0)]
        return (*rows, None, torch.ones(1, 1, 1, 13))
    if name == "equal keys, float32":
        rows = [torch.full((1, 1, n, 13), x) for n, x in ((3, 300.0), (5, 300.0), (5, 1.0))]
        return (*rows, None, torch.full((1, 1, 5, 13), 0.6))
    if name == "bias beside large scores":
        noise = torch.Generator().manual_seed(1)
        query, key = (torch.randn(1, 1, n, 13, generator=noise) * 1000 for n in (4, 1))
        bias = torch.randn(4, 1, generator=noise)
        return query, key, torch.ones(1, 1, 1, 13), bias, torch.full((1, 1, 1, 13), 4.0)
    rows = [torch.zeros(1, 1, n, 8) for n in (3, 5, 5)]
    bias = torch.full((3, 5), torch.finfo(torch.float32).min)
    return (*rows, bias, torch.full((1, 1, 5, 8), 0.6))


CASES = ["one key, bfloat16", "equal keys, float32", "bias beside large scores", "lowest bias"]


def slope_of_value(function, value):
    value = value.clone().requires_grad_()
    (grad,) = torch.autograd.grad(function(value).sum(), value)
    return grad


def canary(name: str, guard: str = "sdpa.errs") -> pytest.MarkDecorator:
    return pytest.mark.canary(name=name, guard=guard)


@pytest.mark.parametrize("name", [pytest.param(name, marks=canary(name, "sdpa.overreaches")) for name in CASES])
def test_torchs_gradient_is_still_wrong(name):
    query, key, value, bias, exact = make_case(name)
    got = slope_of_value(lambda v: scaled_dot_product_attention(query, key, v, attn_mask=bias), value)
    off = (got.double() - exact.double()).abs().max() / exact.abs().max()
    assert off > 16 * torch.finfo(value.dtype).eps, f"off by {off:.1g} of the largest"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["auto", "sdpa", "tiled", "reference"])
def test_ours_is_right(name, backend):
    query, key, value, bias, exact = make_case(name)
    try:
        got = slope_of_value(lambda v: attend(query, key, v, bias=bias, backend=backend), value)
    except RegardError:
        # to refuse is right too, for a backend that was named
        if backend != "sdpa":
            raise
        return
    assert_near(got, exact, units=4, what="dvalue")


def nan_in_one_query(keys):
    noise = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 1, n, 8, generator=noise) for n in (4, keys, keys))
    query[0, 0, 1, 3] = torch.nan
    return query, key, value


@canary("NaN where keys are few")
def test_torch_still_hides_nan_where_keys_are_few():
    out = scaled_dot_product_attention(*nan_in_one_query(4))
    assert not out.isnan().any(), "NaN shows"


@pytest.mark.parametrize("keys", [1, 4, 8, 9, 100])
@pytest.mark.parametrize("backend", ["auto", "sdpa", "tiled", "reference"])
def test_ours_shows_nan(keys, backend):
    out = attend(*nan_in_one_query(keys), backend=backend)
    assert out[0, 0, 1].isnan().all()
    assert out[0, 0, [0, 2, 3]].isfinite().all()


@canary("no second derivative on the CPU", "twice.differentiate_by")
def test_torch_still_has_no_second_derivative_on_the_cpu():
    query = torch.randn(1, 1, 3, 4, requires_grad=True)
    out = scaled_dot_product_attention(query, query, query)
    (first,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        torch.autograd.grad(first.square().sum(), query)


@wide
@canary("the compiler's expm1 of small numbers", guard="score.additive._expm1")
def test_the_compilers_expm1_is_still_wrong():
    small = torch.full((64,), 3e-7)
    assert (torch.compile(torch.expm1)(small) / torch.expm1(small) - 1).abs().max() > 1e-3
