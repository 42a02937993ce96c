"""N4 and N12 on the GPU: gradients of very low and very high logits, and of every option."""

import pytest
import torch

from tests.incidents import test_logits, test_options
from tests.incidents.plain import ON_GPU

pytestmark = pytest.mark.gpu
FUSED = ON_GPU[0]
# every residue of 128 that failed elsewhere, in the first block of a kernel and in its second
LENGTHS = [1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256]


@pytest.mark.parametrize("place", ON_GPU)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("shift", test_logits.SHIFTS)
def test_shifted_logits_keep_their_gradients(shift, n, place):
    test_logits.check_shift(shift, n, place)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("length", [1.0, 30.0, 300.0, 1000.0])
def test_equal_keys_share_equally_whatever_their_size(length, dtype):
    test_logits.check_equal_keys(5, length, FUSED, dtype)


@pytest.mark.parametrize("length", [10.0, 100.0, 1000.0])
def test_a_bias_beside_large_scores_changes_no_weight_of_one_key(length):
    test_logits.check_bias_of_one_key(length, FUSED)


@pytest.mark.parametrize("names", test_options.CALLS, ids=" and ".join)
def test_an_option_changes_every_gradient_as_its_formula_does(names):
    test_options.check(names, FUSED, torch.float32)


def test_what_an_option_learns_gets_its_gradient():
    test_options.check_learned(FUSED, torch.float32)
