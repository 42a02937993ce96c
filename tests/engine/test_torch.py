"""Softmax of a dot product against torch's own function, outputs and gradients."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from regard import attend
from regard.mask import Causal, Window
from regard.score import Dot, Feature
from tests.layouts import cut
from tests.primes import noise
from tests.terms import cotangent
from tests.tolerances import assert_all_close

NAMES = ["output", "gradient of query", "gradient of key", "gradient of value"]
BACKENDS = ["auto", "reference", "tiled", "sdpa"]


def both(ours, theirs, n=5, m=7, g=6, dtype=torch.float64):
    """Output and gradients of two functions of the same rows."""
    shapes = (3, 6, n, 11), (3, g, m, 11), (3, g, m, 11)
    rows = [noise(*shape, seed=s).to(dtype).requires_grad_() for s, shape in enumerate(shapes)]
    results = []
    for run in (ours, theirs):
        out = run(*rows)
        results.append((out.detach(), *torch.autograd.grad(out, rows, cotangent(out))))
    return results


@pytest.fixture(params=BACKENDS)
def ours(request):
    """`attend` on one backend, cut into several tiles where there are any."""

    def make(**terms):
        def run(*rows):
            return attend(*rows, backend=request.param, **terms)

        return run

    with cut(2, 4, 3, 4):
        yield make


@pytest.mark.parametrize("scale", [None, 0.3])
def test_no_mask(ours, scale):
    found, expected = both(ours(score=Dot(scale)), lambda *rows: scaled_dot_product_attention(*rows, scale=scale))
    assert_all_close(found, expected, NAMES)


def test_causal(ours):
    found, expected = both(ours(mask=Causal()), lambda *rows: scaled_dot_product_attention(*rows, is_causal=True), m=5)
    assert_all_close(found, expected, NAMES)


@pytest.mark.parametrize(("n", "m"), [(5, 7), (7, 5), (1, 9), (4, 4)])
def test_causal_is_aligned_to_the_end(ours, n, m):
    # torch's own flag aligns to the start, so it gets the mask written out
    allowed = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    found, expected = both(
        ours(mask=Causal()), lambda *rows: scaled_dot_product_attention(*rows, attn_mask=allowed), n, m
    )
    assert_all_close(found, expected, NAMES)


@pytest.mark.parametrize("shape", [(5, 7), (3, 1, 5, 7), (3, 6, 5, 7), (1, 6, 1, 7)], ids=str)
def test_a_bool_mask(ours, shape):
    allowed = noise(*shape, seed=4) > -0.5
    found, expected = both(ours(mask=allowed), lambda *rows: scaled_dot_product_attention(*rows, attn_mask=allowed))
    assert_all_close(found, expected, NAMES)


def test_a_bias(ours):
    bias = noise(3, 6, 5, 7, seed=5)
    found, expected = both(ours(bias=bias), lambda *rows: scaled_dot_product_attention(*rows, attn_mask=bias))
    assert_all_close(found, expected, NAMES)


def test_a_mask_and_a_bias(ours):
    bias, mask = noise(6, 5, 7, seed=5), Window(2, 1)
    allowed = torch.ones(5, 7, dtype=torch.bool).tril(3).triu(0)
    both_in_one = bias.masked_fill(~allowed, -torch.inf)
    found, expected = both(
        ours(bias=bias, mask=mask), lambda *rows: scaled_dot_product_attention(*rows, attn_mask=both_in_one)
    )
    assert_all_close(found, expected, NAMES)


@pytest.mark.parametrize("g", [1, 2, 3])
def test_grouped_heads(ours, g):
    found, expected = both(ours(), lambda *rows: scaled_dot_product_attention(*rows, enable_gqa=True), g=g)
    assert_all_close(found, expected, NAMES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_lower_precision(ours, dtype):
    found, _ = both(ours(mask=Causal()), ours(mask=Causal()), dtype=dtype)
    rows = [noise(3, 6, n, 11, seed=s).to(dtype).double().requires_grad_() for s, n in enumerate((5, 7, 7))]
    allowed = torch.ones(5, 7, dtype=torch.bool).tril(2)
    out = scaled_dot_product_attention(*rows, attn_mask=allowed)
    exact = out.detach(), *torch.autograd.grad(out, rows, cotangent(out))
    assert all(x.dtype == dtype for x in found)
    assert_all_close(found, [x.to(dtype) for x in exact], NAMES)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
def test_features_may_leave_the_range_of_half_precision(backend):
    # e^12 is infinite in float16, and so it was for torch's kernel
    query = torch.full((1, 1, 2, 8), 12.0, dtype=torch.float16)
    out = attend(query, -query, torch.ones_like(query), score=Feature("exp"), backend=backend)
    assert_all_close([out], [torch.ones_like(query)], ["output"])


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_large_scores_go_around_torchs_backward_whatever_the_sign_of_the_scale(scale):
    # five equal keys: each has a weight of 0.2 in each of three rows
    query, key = torch.full((1, 1, 3, 13), 300.0), torch.full((1, 1, 5, 13), 300.0 * scale)
    value = torch.ones(1, 1, 5, 13, requires_grad=True)
    (grad,) = torch.autograd.grad(attend(query, key, value, score=Dot(scale)).sum(), value)
    assert_all_close([grad], [torch.full_like(grad, 0.6)], ["gradient of value"])
