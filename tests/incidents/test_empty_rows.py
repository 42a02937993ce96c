"""N1: a query with no allowed key gives zeros and passes zero gradients.

NaN in pytorch#41508, #103749, #103963, #109517, #110213, zero since #133882; still seen in transformers#38690, #32390,
#47651 and unsloth#9848 (left padding).
"""

import pytest
import torch

from regard.mask import Allowed, Causal, Document, Edges, Lengths, Window
from tests.incidents.plain import (
    BACKENDS,
    WEIGHERS,
    assert_all_near,
    assert_near,
    assert_same_bits,
    call,
    cosines,
    make,
    run,
)

pytestmark = pytest.mark.thin(3)

N, M = 7, 11
ROWS = torch.ones(2, 1, N, M, dtype=torch.bool)
ROWS[:, :, 2] = False
ROWS[1, :, 5:] = False
INFINITE = torch.zeros(N, M).masked_fill(~ROWS[0, 0], -torch.inf)
# each with the rows (sequence, query) that it leaves empty
EMPTIES = {
    "bool": ({"mask": ROWS}, ~ROWS.any(-1)[:, 0]),
    "-inf bias": ({"bias": INFINITE}, (-torch.inf == INFINITE).all(-1).expand(2, N)),
    "causal and padding": (
        {"mask": Causal(0) & Lengths(torch.tensor([M, 0]))}, torch.tensor([[False] * N, [True] * N])
    ),
    "left padding": (
        {"mask": Causal(0) & Allowed(torch.arange(M) >= 3)}, (torch.arange(N) < 3).expand(2, N)
    ),
    "window outside": ({"mask": Window(1, 0, offset=-3)}, (torch.arange(N) < 3).expand(2, N)),
    "no edge": ({"mask": Edges(torch.tensor([0, 6]), torch.tensor([3, 10]))}, (torch.arange(N) % 6 != 0).expand(2, N)),
    "segment without keys": (
        {"mask": Document(torch.zeros(M, dtype=torch.long), torch.arange(N) // 4)}, (torch.arange(N) > 3).expand(2, N)
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", WEIGHERS)
@pytest.mark.parametrize("kind", EMPTIES)
def test_empty_rows_are_zero_and_have_no_influence(kind, weigh, backend):
    if kind == "-inf bias" and weigh == "sum":
        pytest.skip("a sum of scores has no meaning for -inf")
    check_empty_rows(kind, weigh, backend)


def check_empty_rows(kind, weigh, backend):
    options, empty = EMPTIES[kind]
    assert empty.any()
    query, key, value = make((2, 3, N, 4), (2, 3, M, 4), (2, 3, M, 4))
    options = {**options, "weigh": WEIGHERS[weigh], "backend": backend}
    one = run(query, key, value, **options)
    rows = empty[:, None].expand(2, 3, N)
    assert all(x.isfinite().all() for x in one)
    assert not one[0][rows].any()
    assert not one[1][rows].any()
    # other queries there, and another gradient from above: not one bit changes elsewhere
    grad = torch.where(rows[..., None], 5.0, cosines(one[0]))
    other = torch.where(rows[..., None], 9 - 2 * query.detach(), query.detach()).requires_grad_()
    assert_same_bits(run(other, key, value, grad, **options), one)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", WEIGHERS)
def test_no_keys_at_all(weigh, backend):
    check_no_keys(weigh, backend)


def check_no_keys(weigh, backend):
    query, key, value = make((2, 3, N, 5), (2, 3, 0, 5), (2, 3, 0, 5))
    out, *grads = run(query, key, value, weigh=WEIGHERS[weigh], backend=backend)
    assert out.shape == (2, 3, N, 5)
    assert not any(x.any() for x in (out, *grads))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_layers_stay_finite(backend, dtype):
    check_two_layers(backend, dtype)


def check_two_layers(backend, dtype):
    (x,) = make((2, 2, N, 4), dtype=dtype)
    mask = Causal() & Allowed(torch.arange(N) >= 3)
    hidden = call(x, x, x, backend, mask=mask)
    out = call(hidden, hidden, hidden, backend, mask=mask)
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    assert out.isfinite().all()
    assert grad.isfinite().all()
    assert grad.any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_lowest_finite_bias_is_a_number_and_not_a_mask(backend, dtype):
    check_lowest_bias(backend, dtype)


def check_lowest_bias(backend, dtype):
    # masks of other libraries write finfo.min: where a whole row has it, it swallows the scores: all weights are equal
    query, key, value = make((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), dtype=dtype)
    bias = torch.zeros(3, 5, dtype=dtype)
    bias[1] = torch.finfo(dtype).min
    grad = torch.zeros(1, 2, 3, 8, dtype=dtype)
    grad[:, :, 1] = 1
    out, dquery, dkey, dvalue = run(query, key, value, grad, bias=bias, backend=backend)
    # all but float16's, which is no more than -65,504: next to it a score of one still counts, if not to the last digit
    weights = torch.full((1, 2, 5), 0.2, dtype=torch.float64)
    if dtype == torch.float16:
        weights = torch.softmax((query.double() @ key.double().mT)[:, :, 1] / 8**0.5, -1)
    units = 8 if dtype == torch.float16 else 4
    assert_near(out[:, :, 1], torch.einsum("bhj,bhje->bhe", weights, value.double()), units)
    assert_near(dvalue, weights[..., None].expand(dvalue.shape), units, "dvalue")
    assert dquery.isfinite().all()
    assert dkey.isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_lowest_finite_bias_beside_zeros_hides_a_key(backend):
    query, key, value = make((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    bias = torch.zeros(3, 5)
    bias[:, 2:] = torch.finfo(torch.float32).min
    got = run(query, key, value, bias=bias, backend=backend)
    expected = run(query, key, value, mask=torch.arange(5) < 2, backend="reference")
    assert_all_near(got, expected)
