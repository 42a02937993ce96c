"""Turns, loops and rounds by a clock that only calls move; bytes by hand, and by what torch's profiler saw."""

import gc
import json
import statistics
import time
from types import SimpleNamespace

import pytest
import torch

from regard.compare.kinds import KINDS
from regard.compare.meters import spending
from regard.compare.meters.spending import Budget, find_free, find_peak, pause_gc, time_calls
from regard.compare.settings import Dimensions


@pytest.mark.parametrize(
    ("seconds", "takes", "count"),
    [(10.0, [2.0] * 9, 5), (10.0, [4.0, 1.0, 1.0, 1.0, 1.0, 1.0], 4), (1.0, [50.0, 1.0], 1), (None, [50.0] * 4, 4)],
)
def test_another_is_begun_while_there_is_time_for_the_longest(seconds, takes, count):
    clock = SimpleNamespace(now=100.0)
    budget = Budget(seconds, lambda: clock.now)
    done = 0
    for one in takes:
        if budget.allows():
            clock.now, done = clock.now + one, done + 1
    assert done == count


class Clock:
    """Stands still but for calls; `steps` are the seconds of each call in turn, the last one from then on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.log: list[str] = []

    def read(self) -> float:
        return self.now

    def make(self, name: str, *steps: float):
        left = list(steps)

        def call() -> None:
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


def expect(seconds, rounds=3):
    """What a call takes that always takes as long."""
    return {**dict.fromkeys(("seconds", "low", "high", "fastest"), seconds), "rounds": rounds}


def test_everyone_has_a_turn_a_round_back_and_forth():
    clock = Clock()
    calls = {name: clock.make(name, 0.25) for name in "abc"}
    found = time_calls(calls, budget=0.0, read=clock.read)
    # a call as long as this needs no warming up; there are three rounds, whatever the budget
    assert "".join(clock.log) == "abc" + "cba" + "abc"
    assert found == {name: expect(0.25) for name in "abc"}


def test_short_calls_are_looped_until_the_clock_can_tell():
    clock = Clock()
    # the first call is slow: it does not decide how many there are in a turn
    found = time_calls({"a": clock.make("a", 0.015, 1e-4)}, budget=0.0, read=clock.read)
    assert len(clock.log) == 2 + 3 * 20
    assert found["a"]["seconds"] == pytest.approx(1e-4)


def test_short_and_long_ones_take_turns():
    clock = Clock()
    calls = {"s": clock.make("s", 0.01), "l": clock.make("l", 0.3)}
    found = time_calls(calls, budget=0.0, read=clock.read)
    # twice to warm up the short one; the long one has had its first turn then
    assert "".join(clock.log) == "ss" + "l" + "s" + "ls" + "sl"
    assert (found["s"]["rounds"], found["l"]["rounds"]) == (3, 3)


def test_a_call_of_no_time_is_no_division_by_zero():
    clock = Clock()
    ticks = iter(range(10**9))
    found = time_calls({"a": lambda: None}, budget=0.0, read=lambda: 1.0 if next(ticks) < 4 else clock.read())
    assert found["a"]["rounds"] == 3


def test_median_and_quartiles_are_those_of_the_rounds():
    clock = Clock()
    took = [0.5, 0.9, 0.3, 0.8, 0.4]
    found = time_calls({"a": clock.make("a", *took, 9.0)}, budget=100.0, most=5, read=clock.read)["a"]
    low, middle, high = statistics.quantiles(took, n=4, method="inclusive")
    assert (found["low"], found["seconds"], found["high"]) == pytest.approx((low, middle, high))
    assert (found["fastest"], found["rounds"]) == (pytest.approx(0.3), 5)


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, 3), (1.9, 3), (2.0, 3), (2.1, 4), (3.1, 5), (1000.0, 7)])
def test_rounds_go_on_until_the_budget_is_spent(budget, rounds):
    clock = Clock()
    calls = {name: clock.make(name, 0.5) for name in "ab"}
    assert time_calls(calls, budget=budget, most=7, read=clock.read)["a"]["rounds"] == rounds


def test_a_turn_begins_and_ends_with_the_device_at_rest(monkeypatch):
    clock = Clock()
    # what was begun before is no one's
    pending, settled = [7.0], []

    def make(seconds: float):
        # as a kernel does: the call returns at once, the device works on
        return lambda: pending.append(seconds)

    def synchronize(device) -> None:
        settled.append(device)
        clock.now += sum(pending)
        pending.clear()

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    found = time_calls({"a": make(0.25), "b": make(0.5)}, "cuda", budget=0.0, read=clock.read)
    assert found == {"a": expect(0.25), "b": expect(0.5)}
    assert set(settled) == {"cuda"}
    settled.clear()
    time_calls({"a": clock.make("a", 0.25)}, "cpu", budget=0.0, read=clock.read)
    assert settled == []


def test_gc_is_off_within_and_on_again_after_an_error():
    seen = []

    def break_off() -> None:
        seen.append(gc.isenabled())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        time_calls({"a": break_off})
    assert seen == [False]
    assert gc.isenabled()


def test_real_time_is_seconds():
    found = time_calls({"nap": lambda: time.sleep(0.01), "none": lambda: None}, budget=0.0)
    # a sleep is never shorter than asked for
    assert 0.01 <= found["nap"]["low"] <= found["nap"]["seconds"] <= found["nap"]["high"]
    assert found["none"]["seconds"] < found["nap"]["seconds"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_it_waits_for_the_device():
    rows = torch.randn(8192, 8192, device="cuda")
    found = time_calls({"large": lambda: rows @ rows, "small": lambda: rows[:8] @ rows[:, :8]}, "cuda")
    # 1.1 TFLOP take longer than 10 ms on any device of today, and their launch microseconds
    assert found["large"]["seconds"] > 5 * found["small"]["seconds"]


# --- memory -----------------------------------------------------------------------------------------------------------

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
    monkeypatch.setattr(spending, "LINUX", tmp_path / "meminfo")
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
