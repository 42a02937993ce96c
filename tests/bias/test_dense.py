"""A bias written out: any shape that broadcasts, and gradients in the shape that was given."""

import pytest
import torch

from regard import attend
from regard.bias import Dense
from tests.layouts import cut
from tests.terms import cotangent
from tests.tolerances import assert_close

# a call of 2 × 3 sequences, 2 heads, 5 queries, 7 keys
SHAPES = [
    (), (1,), (7,), (5, 7), (5, 1), (2, 5, 7), (2, 1, 1), (1, 1, 1, 7), (3, 1, 5, 7), (2, 1, 2, 1, 7), (2, 3, 2, 5, 7),
]  # fmt: skip


def call(seed=0):
    noise = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, 2, n, 3, generator=noise, dtype=torch.float64) for n in (5, 7, 7)]


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_come_back_in_the_shape_given(shape, backend):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    query, key, value = call()
    # the whole computation by hand
    scores = query @ key.mT * 3**-0.5 + values
    expected = scores.softmax(-1) @ value
    with cut(2, 1, 3, 4):
        out = attend(query, key, value, bias=values, backend=backend)
        (grad,) = torch.autograd.grad(out, values, cotangent(out))
    assert_close(out, expected)
    assert grad.shape == values.shape
    assert_close(grad, torch.autograd.grad(expected, values, cotangent(expected))[0], "gradient of bias")


def test_a_tensor_and_dense_are_the_same():
    query, key, value = call()
    values = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert torch.equal(attend(query, key, value, bias=values), attend(query, key, value, bias=Dense(values)))


def test_minus_infinity_hides_a_key_softly():
    # numbers stay numbers: a bias of -inf takes the key's weight away, and rows of nothing but -inf give zeros
    query, key, value = call()
    values = torch.zeros(5, 7, dtype=torch.float64)
    values[:, 3] = -torch.inf
    values[2] = -torch.inf
    for backend in ("reference", "tiled", "sdpa"):
        out = attend(query, key, value, bias=values, backend=backend)
        assert_close(out, attend(query, key, value, mask=values == 0, backend="reference"), backend)
