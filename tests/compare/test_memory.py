"""Bytes at the peak, against counts by hand and against what torch's profiler saw of the allocator."""

import gc
import json

import pytest
import torch

from regard.compare.kinds import KINDS, Dimensions
from regard.compare.measure import memory
from regard.compare.measure.memory import find_free, find_peak, pause_gc

DIMS = Dimensions(width=16, kernel=5, heads=2, window=8)
# operators with scratch space of their own: layouts that a kernel wants, and sums of its threads
KERNELS = {
    "aten::convolution",
    "aten::convolution_backward",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
}


def watch_allocator(call, tmp_path) -> int:
    """The peak of all allocations, without what a kernel both takes and gives back."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [(x["ts"], x["ts"] + x["dur"]) for x in events if x.get("name") in KERNELS]
    changes = sorted((x["ts"], x["args"]["Addr"], x["args"]["Bytes"]) for x in events if x.get("name") == "[memory]")
    assert changes
    scratch, open_at = set(), {}
    for at, (when, address, size) in enumerate(changes):
        if size > 0:
            open_at[address] = at
        elif address in open_at:
            start = open_at.pop(address)
            if any(low <= changes[start][0] and when <= high for low, high in kernels):
                scratch |= {start, at}
    live = most = 0
    for at, (_, _, size) in enumerate(changes):
        live += 0 if at in scratch else size
        most = max(most, live)
    return most


@pytest.mark.parametrize("is_training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_the_allocator_gave_out(kind, is_training, tmp_path):
    torch.manual_seed(0)
    layer = KINDS[kind].build(DIMS)
    for part in layer.modules():
        # a layer that keeps its last call frees the one before, which was alive before this call
        part.shows_weights = False
    rows = torch.randn(3, 37, 16, requires_grad=is_training)

    def call():
        with torch.set_grad_enabled(is_training):
            out = layer(rows)
        return torch.autograd.grad(out.sum(), [rows, *layer.parameters()]) if is_training else out

    call()
    assert find_peak(call) == watch_allocator(call, tmp_path)


def test_views_and_inputs_cost_nothing():
    rows = torch.randn(10, 10)
    assert find_peak(lambda: rows.mT.reshape(100)[50:].view(5, 10)) == 400
    assert find_peak(lambda: rows.mT.unflatten(0, (2, 5))[1]) == 0
    assert find_peak(lambda: rows.add_(1).mul_(2)) == 0
    room = torch.empty(10, 10)
    assert find_peak(lambda: torch.exp(rows, out=room)) == 0


def test_what_is_freed_is_counted_no_more():
    rows = torch.randn(256)

    def walk():
        state = rows
        for _ in range(10):
            state = state * 2
        return state

    def hold():
        return [rows * 2 for _ in range(10)]

    assert find_peak(walk) == 2 * 1024
    assert find_peak(hold) == 10 * 1024


def test_a_peak_in_the_middle_is_found():
    rows = torch.randn(64, 1)
    assert find_peak(lambda: (rows @ rows.mT).sum()) == 64 * 64 * 4 + 4


def test_the_backward_pass_is_counted():
    rows = torch.randn(1000, requires_grad=True)

    def train():
        made = rows.exp().exp().exp()
        return torch.autograd.grad(made, rows, torch.ones_like(made))

    # three results that are kept for the way back, the ones, and the gradients before and after a step
    assert find_peak(train) == 6 * 4000


def test_operators_with_many_results_are_counted_once():
    rows = torch.randn(6, 100)
    assert find_peak(lambda: rows.clone().chunk(3)) == 2400
    assert find_peak(lambda: torch.sort(rows)) == 2400 + 4800


def test_it_can_be_asked_again():
    rows = torch.randn(100, requires_grad=True)
    found = {find_peak(lambda: torch.autograd.grad(rows.exp().sum(), rows)) for _ in range(3)}
    assert len(found) == 1


def test_after_an_error_all_is_as_before():
    rows = torch.randn(4)
    with pytest.raises(ZeroDivisionError):
        find_peak(lambda: rows.exp() / (1 // 0))
    assert gc.isenabled()
    assert torch._C._len_torch_dispatch_stack() == 0


def test_gc_stays_as_it_was():
    gc.disable()
    try:
        with pause_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pause_gc():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_free_memory_is_read_where_the_system_says_it(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "LINUX", tmp_path / "meminfo")
    assert find_free() is None
    (tmp_path / "meminfo").write_text("MemTotal:       24000000 kB\nMemAvailable:    2000000 kB\n")
    assert find_free() == 2_000_000 * 1024
    (tmp_path / "meminfo").write_text("MemTotal:       24000000 kB\n")
    assert find_free() is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_the_allocator_says_it():
    rows = torch.randn(256, 256, device="cuda")
    assert find_peak(lambda: rows.exp().mul_(2), "cuda") == 256 * 256 * 4
    assert find_free("cuda") > 0
