"""What is known of a tensor's range, and when it is not known any more."""

from __future__ import annotations

import gc

import pytest
import torch

from regard import attend
from regard.core import RegardError
from regard.mask import Lengths
from regard.mask.integer import misfit_integers, recall_range, remember_range, vouch

CPU = torch.device("cpu")


def test_what_was_kept_in_mind_is_used_until_the_numbers_change():
    lengths = torch.tensor([3, 9])
    remember_range(lengths, 0, 4)
    assert recall_range(lengths) == (0, 4)
    assert misfit_integers("lengths", lengths, CPU, 0, 4) is None
    assert misfit_integers("lengths", lengths, CPU, 0, 3) == "lengths must be at most 3, got 4."
    lengths[0] = 7
    assert recall_range(lengths) is None
    assert misfit_integers("lengths", lengths, CPU, 0, 4) == "lengths must be at most 4, got 9."


def test_a_change_through_a_view_counts():
    lengths = torch.tensor([3, 4])
    remember_range(lengths, 3, 4)
    lengths[:1].fill_(99)
    assert recall_range(lengths) is None


def test_another_tensor_in_the_same_place_is_not_known():
    for _ in range(50):
        lengths = torch.tensor([3, 9])
        assert recall_range(lengths) is None
        remember_range(lengths, 0, 1)
        del lengths
        gc.collect(0)


def test_no_more_than_a_few_are_kept_in_mind():
    many = [torch.tensor([i]) for i in range(100)]
    for x in many:
        remember_range(x, 0, 1)
    assert sum(recall_range(x) is not None for x in many) <= 16
    assert recall_range(many[-1]) == (0, 1)


def test_tensors_of_inference_mode_are_looked_at():
    with torch.inference_mode():
        lengths = torch.tensor([3, 9])
        remember_range(lengths, 0, 1)
        assert recall_range(lengths) is None
        assert misfit_integers("lengths", lengths, CPU, 0, 4) == "lengths must be at most 4, got 9."


def test_on_the_cpu_every_call_looks():
    numbers = torch.tensor([2, 3]).numpy()
    lengths, rows = torch.from_numpy(numbers), torch.zeros(2, 1, 3, 4)
    attend(rows, rows, rows, mask=Lengths(lengths))
    # not by torch, which would have counted it
    numbers[0] = 5
    with pytest.raises(RegardError, match="must be at most 3"):
        attend(rows, rows, rows, mask=Lengths(lengths))


@pytest.mark.parametrize(
    "given", [None, "3", torch.tensor([1.5]), torch.tensor([9]), torch.tensor([], dtype=torch.int64)]
)
def test_what_is_on_no_gpu_is_left_to_those_who_look(given):
    vouch(given, 0, 4)
    if isinstance(given, torch.Tensor):
        assert recall_range(given) is None


@pytest.mark.gpu
def test_a_gpu_is_not_waited_for():
    lengths = torch.tensor([3, 4], device="cuda")
    vouch(lengths, 0, 4)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert misfit_integers("lengths", lengths, lengths.device, 0, 4) is None
    finally:
        torch.cuda.set_sync_debug_mode("default")
