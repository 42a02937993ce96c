"""Turns, loops and rounds by a clock that only calls move; real time by what is true on any machine."""

import gc
import statistics
import time

import pytest
import torch

from regard.compare.measure.clock import Timing, time_calls


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


def test_everyone_has_a_turn_a_round_back_and_forth():
    clock = Clock()
    calls = {name: clock.make(name, 0.25) for name in "abc"}
    found = time_calls(calls, budget=0.0, read=clock.read)
    # a call as long as this needs no warming up; there are three rounds, whatever the budget
    assert "".join(clock.log) == "abc" + "cba" + "abc"
    assert found == {name: Timing(0.25, 0.25, 0.25, 0.25, 3) for name in "abc"}


def test_short_calls_are_looped_until_the_clock_can_tell():
    clock = Clock()
    # the first call is slow: it does not decide how many there are in a turn
    found = time_calls({"a": clock.make("a", 0.015, 1e-4)}, budget=0.0, read=clock.read)
    assert len(clock.log) == 2 + 3 * 20
    assert found["a"].seconds == pytest.approx(1e-4)


def test_short_and_long_ones_take_turns():
    clock = Clock()
    calls = {"s": clock.make("s", 0.01), "l": clock.make("l", 0.3)}
    found = time_calls(calls, budget=0.0, read=clock.read)
    # twice to warm up the short one; the long one has had its first turn then
    assert "".join(clock.log) == "ss" + "l" + "s" + "ls" + "sl"
    assert (found["s"].rounds, found["l"].rounds) == (3, 3)


def test_a_call_of_no_time_is_no_division_by_zero():
    clock = Clock()
    ticks = iter(range(10**9))
    found = time_calls({"a": lambda: None}, budget=0.0, read=lambda: 1.0 if next(ticks) < 4 else clock.read())
    assert found["a"].rounds == 3


def test_median_and_quartiles_are_those_of_the_rounds():
    clock = Clock()
    took = [0.5, 0.9, 0.3, 0.8, 0.4]
    found = time_calls({"a": clock.make("a", *took, 9.0)}, budget=100.0, most=5, read=clock.read)["a"]
    low, middle, high = statistics.quantiles(took, n=4, method="inclusive")
    assert (found.low, found.seconds, found.high) == pytest.approx((low, middle, high))
    assert (found.fastest, found.rounds) == (pytest.approx(0.3), 5)


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, 3), (1.9, 3), (2.0, 3), (2.1, 4), (3.1, 5), (1000.0, 7)])
def test_rounds_go_on_until_the_budget_is_spent(budget, rounds):
    clock = Clock()
    calls = {name: clock.make(name, 0.5) for name in "ab"}
    assert time_calls(calls, budget=budget, most=7, read=clock.read)["a"].rounds == rounds


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
    assert found == {"a": Timing(0.25, 0.25, 0.25, 0.25, 3), "b": Timing(0.5, 0.5, 0.5, 0.5, 3)}
    assert set(settled) == {"cuda"}
    settled.clear()
    time_calls({"a": clock.make("a", 0.25)}, "cpu", budget=0.0, read=clock.read)
    assert settled == []


def test_nobody_is_nothing():
    assert time_calls({}) == {}


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
    assert 0.01 <= found["nap"].low <= found["nap"].seconds <= found["nap"].high
    assert found["none"].seconds < found["nap"].seconds


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_it_waits_for_the_device():
    rows = torch.randn(8192, 8192, device="cuda")
    found = time_calls({"large": lambda: rows @ rows, "small": lambda: rows[:8] @ rows[:, :8]}, "cuda")
    # 1.1 TFLOP take longer than 10 ms on any device of today, and their launch microseconds
    assert found["large"].seconds > 5 * found["small"].seconds
