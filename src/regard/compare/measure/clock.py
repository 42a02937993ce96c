"""How long calls take, all of them in turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from regard.compare.measure.memory import pause_gc

# a turn takes at least so many seconds: a thousand times what the clock can tell apart
TURN = 2e-3
# a call that takes this long needs no other to warm up
LONG = 0.02
# fewer have no quartiles to speak of
ROUNDS = 3


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median of all rounds, the quartiles around it, and the fastest."""

    seconds: float
    low: float
    high: float
    fastest: float
    rounds: int


def time_calls(
    calls: Mapping[str, Callable[[], object]],
    device: torch.device | str = "cpu",
    budget: float = 1.0,
    most: int = 15,
    read: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """The seconds of each call.

    >>> timings = time_calls({"short": lambda: list(range(10)), "long": lambda: list(range(100_000))}, budget=0.1)
    >>> timings["short"].seconds < timings["long"].seconds
    True

    Each has one turn a round, back and forth, so that what the machine does meanwhile meets all of them alike; a turn
    is as many calls as the clock needs. There are three rounds at least, then more until they took `budget` seconds or
    were `most`. On CUDA a turn ends when the device has finished.
    """

    def take_turn(call: Callable[[], object], loops: int) -> float:
        _settle(device)
        start = read()
        for _ in range(loops):
            call()
        _settle(device)
        return (read() - start) / loops

    seconds: dict[str, list[float]] = {}
    loops: dict[str, int] = {}
    with pause_gc():
        for name, call in calls.items():
            first = take_turn(call, 1)
            # a long call is warm by its end, and is the turn of the first round; others only warm up
            seconds[name] = [first] if first >= LONG else []
            loops[name] = 1 if first >= LONG else math.ceil(TURN / max(take_turn(call, 1), 1e-6))
        start = read()
        for turn in range(most):
            if turn >= ROUNDS and read() - start >= budget:
                break
            for name in calls if turn % 2 == 0 else reversed(list(calls)):
                if len(seconds[name]) == turn:
                    seconds[name].append(take_turn(calls[name], loops[name]))
    return {name: _sum_up(found) for name, found in seconds.items()}


def _settle(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def _sum_up(found: list[float]) -> Timing:
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return Timing(seconds=middle, low=low, high=high, fastest=min(found), rounds=len(found))
