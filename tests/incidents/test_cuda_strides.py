"""N5, N6, N7 on the GPU: odd strides of inputs and of the output's gradient, sizes that are all different primes."""

import pytest
import torch

from regard.mask import Causal
from tests.incidents import test_asymmetric, test_strides
from tests.incidents.plain import ON_GPU, VIEWS

pytestmark = pytest.mark.gpu
FUSED = ON_GPU[0]


# kernels are compiled anew for strides of zero, one and multiples of 16: not every view of every tensor
@pytest.mark.parametrize("place", ON_GPU)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_its_copy(view, place):
    test_strides.check_rows(view, slice(None), place, [Causal()])


@pytest.mark.parametrize("which", [0, 1, 2], ids=["query", "key", "value"])
def test_one_view_among_copies(which):
    test_strides.check_rows("every second", which, FUSED, [Causal()])


@pytest.mark.parametrize("view", [*VIEWS, "one number"])
def test_the_outputs_gradient_may_have_any_strides(view):
    test_strides.check_grad(view, True, FUSED)


@pytest.mark.parametrize("grouped", [False, True], ids=["", "grouped"])
@pytest.mark.parametrize("one_width", [False, True], ids=["widths differ", "one width"])
@pytest.mark.parametrize("layout", test_asymmetric.LAYOUTS)
def test_every_gradient_is_the_formulas(layout, one_width, grouped):
    # another layout for the gradient: it must not be taken from an input
    names = list(test_asymmetric.LAYOUTS)
    of_grad = names[names.index(layout) - 1]
    test_asymmetric.check(layout, of_grad, one_width, grouped, FUSED, torch.float32)
