"""N6: gradients with sizes that are all different primes, so that no two axes can be mixed up.

K and V were transposed twice in backward in diffusers#14338; a gradient took its layout from the wrong tensor in
pytorch#133671.
"""

import pytest
import torch

from regard.score import Bilinear
from tests.incidents.plain import BACKENDS, assert_all_near, attend_plainly, cosines, make, run

pytestmark = pytest.mark.thin(3)

LAYOUTS = {
    "heads outside": lambda x: x,
    "heads inside": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "widths outside": lambda x: x.mT.contiguous().mT,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grouped", [False, True], ids=["", "grouped"])
@pytest.mark.parametrize("one_width", [False, True], ids=["widths differ", "one width"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("grad_layout", LAYOUTS)
def test_every_gradient_is_the_formulas(layout, grad_layout, one_width, grouped, backend):
    check(layout, grad_layout, one_width, grouped, backend)


def check(layout, grad_layout, one_width, grouped, backend, dtype=torch.float64):
    b, h, n, m, d = 2, 3, 5, 7, 11
    e, g = (d if one_width else 13), (1 if grouped else h)
    leaves = make((b, h, n, d), (b, g, m, d), (b, g, m, e), dtype=dtype)
    rows = [LAYOUTS[layout](x.detach()).requires_grad_() for x in leaves]
    (grad,) = make((b, h, n, e), dtype=dtype, seed=9)
    got = run(*rows, LAYOUTS[grad_layout](grad.detach()), backend=backend)
    wide = [x.detach().double().requires_grad_() for x in leaves]
    out = attend_plainly(*wide)
    expected = [out, *torch.autograd.grad(out, wide, grad.double())]
    assert_all_near(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_autograd_on_either_side(backend):
    # the softmax gradient written out by hand: the oracle itself uses autograd, as the library does
    query, key, value, grad = make((2, 3, 5, 11), (2, 3, 7, 11), (2, 3, 7, 11), (2, 3, 5, 11), dtype=torch.float64)
    got = run(query, key, value, grad.detach(), backend=backend)
    q, k, v, g = (x.detach() for x in (query, key, value, grad))
    weights = torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) / 11**0.5, -1)
    dweights = torch.einsum("bhie,bhje->bhij", g, v)
    dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True)) / 11**0.5
    expected = (
        torch.einsum("bhij,bhje->bhie", weights, v), torch.einsum("bhij,bhjd->bhid", dscores, k),
        torch.einsum("bhij,bhid->bhjd", dscores, q), torch.einsum("bhij,bhie->bhje", weights, g),
    )  # fmt: skip
    assert_all_near(got, expected)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_a_matrix_that_is_not_square(backend):
    query, key, value, weight = make((2, 3, 5, 11), (2, 3, 7, 17), (2, 3, 7, 13), (3, 11, 17), dtype=torch.float64)
    got = run(query, key, value, score=Bilinear(weight), backend=backend)
    moved = torch.einsum("bhid,hdc->bhic", query, weight)
    out = attend_plainly(moved, key, value, scale=1.0)
    expected = [out, *torch.autograd.grad(out, (query, key, value), cosines(out))]
    assert_all_near(got, expected)
