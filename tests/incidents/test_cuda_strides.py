"""N5, N6, N7 on the GPU: odd strides of inputs and of the output's gradient, sizes that are all different primes."""

import pytest
import torch

from tests.incidents import test_asymmetric, test_strides
from tests.incidents.plain import ON_GPU, VIEWS

pytestmark = pytest.mark.gpu
FUSED = ON_GPU[0]


@pytest.mark.parametrize("which", [0, 1, 2, slice(None)], ids=["query", "key", "value", "all"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_its_copy(view, which):
    test_strides.check_rows(view, which, FUSED)


@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("view", [*VIEWS, "one number"])
def test_the_outputs_gradient_may_have_any_strides(view, masked):
    test_strides.check_grad(view, masked, FUSED)


@pytest.mark.parametrize("view", VIEWS)
def test_auto_takes_every_view(view):
    test_strides.check_rows(view, slice(None), ON_GPU[1])


@pytest.mark.parametrize("grouped", [False, True], ids=["", "grouped"])
@pytest.mark.parametrize("one_width", [False, True], ids=["widths differ", "one width"])
@pytest.mark.parametrize("layout", test_asymmetric.LAYOUTS)
@pytest.mark.parametrize("grad_layout", test_asymmetric.LAYOUTS)
def test_every_gradient_is_the_formulas(layout, grad_layout, one_width, grouped):
    test_asymmetric.check(layout, grad_layout, one_width, grouped, FUSED, torch.float32)
