"""What is known of a tensor's range, and when it is not known any more."""

from __future__ import annotations

import gc

import pytest
import torch

from regard import attend
from regard.core import RegardError
from regard.mask import Lengths
from regard.mask.integer import assert_range, misfit_integers, recall_range, remember_range

CPU = torch.device("cpu")


def test_what_was_kept_in_mind_is_used_until_the_numbers_change():
    lengths = torch.tensor([3, 9])
    remember_range(lengths, 0, 4)
    assert recall_range(lengths) == (0, 4)
    assert misfit_integers("lengths", lengths, CPU, 0, 4) is None
    lengths[0] = 7
    assert recall_range(lengths) is None
    assert misfit_integers("lengths", lengths, CPU, 0, 4) == "lengths must be at most 4, got 9."


def test_a_change_through_a_view_counts():
    lengths = torch.tensor([3, 4])
    remember_range(lengths, 3, 4, is_seen=True)
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
    assert_range(given, 0, 4)
    if isinstance(given, torch.Tensor):
        assert recall_range(given) is None


def test_bounds_are_not_told_as_numbers():
    lengths = torch.tensor([3, 5])
    remember_range(lengths, -20, 20)
    assert misfit_integers("lengths", lengths, CPU, 0, 10) is None
    assert misfit_integers("lengths", lengths, CPU, 0, 4) == "lengths must be at most 4, got 5."
    assert misfit_integers("lengths", lengths, CPU, 4, 9) == "lengths must be at least 4, got 3."


def test_numbers_that_were_seen_are_told():
    lengths = torch.tensor([3, 5])
    # other than they are, to see that nobody looks
    remember_range(lengths, 2, 6, is_seen=True)
    assert misfit_integers("lengths", lengths, CPU, 0, 5) == "lengths must be at most 5, got 6."


@pytest.fixture
def as_on_gpu(monkeypatch):
    """Whatever lies on the CPU is vouched for as if it lay on a GPU; there, an assertion fails at once."""
    monkeypatch.setattr("regard.mask.integer._is_on_gpu", lambda values: True)


@pytest.fixture
def asserted(monkeypatch, as_on_gpu):
    """What a GPU was asked to assert."""
    made = []
    real = torch._assert_async
    monkeypatch.setattr(torch, "_assert_async", lambda x, message: made.append(message) or real(x, message))
    return made


@pytest.mark.parametrize(("widths", "count"), [((20, 10), 2), ((10, 20), 1), ((20, 10, 15, 10), 2), ((9, 9), 1)])
def test_each_narrower_bound_is_asserted_once(widths, count, asserted):
    lengths = torch.tensor([3, 5])
    for width in widths:
        assert_range(lengths, 0, width)
        assert misfit_integers("lengths", lengths, CPU, 0, width) is None
    assert len(asserted) == count
    assert recall_range(lengths) == (0, min(widths))
    assert_range(lengths, 2, 50)
    assert recall_range(lengths) == (2, min(widths))


@pytest.mark.parametrize(("low", "high"), [(0, 10), (4, 20)])
def test_a_narrower_bound_that_does_not_hold_is_stopped_at(low, high, as_on_gpu):
    lengths = torch.tensor([3, 15])
    assert_range(lengths, 0, 20)
    with pytest.raises(RuntimeError, match=f"must lie within {low} and {high}"):
        assert_range(lengths, low, high)
    assert recall_range(lengths) == (0, 20)


def test_numbers_that_were_seen_are_complained_about_in_words(asserted):
    lengths = torch.tensor([3, 15])
    remember_range(lengths, 3, 15, is_seen=True)
    assert_range(lengths, 0, 10)
    assert not asserted
    assert misfit_integers("lengths", lengths, CPU, 0, 10) == "lengths must be at most 10, got 15."


@pytest.mark.gpu
@pytest.mark.parametrize("widths", [(20, 10), (10, 20)])
def test_a_gpu_is_not_waited_for_with_another_width(widths):
    lengths = torch.tensor([3, 5], device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for width in widths:
            assert_range(lengths, 0, width)
            assert misfit_integers("lengths", lengths, lengths.device, 0, width) is None
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert misfit_integers("lengths", lengths, lengths.device, 0, 4) == "lengths must be at most 4, got 5."


@pytest.mark.gpu
def test_a_gpu_is_not_waited_for():
    lengths = torch.tensor([3, 4], device="cuda")
    assert_range(lengths, 0, 4)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert misfit_integers("lengths", lengths, lengths.device, 0, 4) is None
    finally:
        torch.cuda.set_sync_debug_mode("default")
