"""Kernels are compiled once for arguments of a sort, side by side, and started again on addresses."""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple

import pytest
import torch

pytest.importorskip("triton")

from regard.engine.backends.fused import start as module
from regard.engine.backends.fused.kernels.bits import Noise
from regard.engine.backends.fused.kernels.masks import Mask
from regard.engine.backends.fused.kernels.tiles import Size
from regard.engine.backends.fused.kernels.weighs import Stat
from regard.engine.backends.fused.start import Spot, Starter, hand_over, start, start_all
from regard.engine.backends.fused.terms import lay_out
from tests.fused.driving import STREAM, Kernel, lend


class Rows(NamedTuple):
    at: object
    step: object


@pytest.fixture
def driver(monkeypatch):
    return lend(monkeypatch)


@pytest.fixture
def kernel(driver):
    return Kernel()


def test_what_is_compiled_gets_addresses_and_numbers_in_the_kernels_order(driver):
    kernel = Kernel()
    usual = {"SIZE": 64, "num_warps": 4}
    for time in range(2):
        x, y = torch.zeros(4), torch.zeros(4)
        given = Rows(Spot(2, y), 3), Spot(0, x), (None, (Spot(1, 5 + time), 0.5))
        # one by one, as a pass is made anew
        starters = [Starter(kernel, 7 + heal, usual | {"HEAL": heal}, given) for heal in (0, 1)]
        start_all(starters, [x, 5 + time, y])
        for launch, heal in zip(driver.launches, (0, 1), strict=True):
            assert (launch.count, launch.stream) == (7 + heal, STREAM)
            assert launch.numbers == (y.data_ptr(), 3, x.data_ptr(), 5 + time, 0.5)
        driver.launches.clear()
    assert [(given[0].step, options) for _, given, options in kernel.log] == [
        (3, usual | {"HEAL": heal}) for heal in (0, 1)
    ]  # fmt: skip


def test_kernels_that_are_new_at_one_time_are_compiled_side_by_side(driver, monkeypatch):
    inside = []

    class Mode:
        def __init__(self, pool):
            inside.append(pool)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            inside.pop()

    class Slow(Kernel):
        def warmup(self, *given, **options):
            made = Future()
            made.set_result(super().warmup(*given, **options))
            self.log.append(len(inside))
            return made

    monkeypatch.setattr(module.triton, "JITFunction", Slow)
    monkeypatch.setattr(module.triton, "AsyncCompileMode", Mode)
    kernels = [Slow("a"), Slow("b"), Slow("a")]
    x = torch.zeros(4)
    start_all([Starter(kernel, 1, {}, (Spot(0, x),)) for kernel in (*kernels[:2], kernels[0])], [x])
    # whoever is alone needs no pool
    start_all([Starter(kernels[2], 1, {}, (Spot(0, x),))], [x])
    assert [kernel.log[1:] for kernel in kernels] == [[1], [1], [0]]
    assert [launch.name for launch in driver.launches] == ["a", "b", "a", "a"]


def test_nothing_is_compiled_before_triton_is_awake(kernel, driver, monkeypatch):
    log = []
    monkeypatch.setattr(module, "wait", lambda: log.append(kernel.compiled))
    for _ in range(2):
        start(kernel, 1, BASE, **USUAL)
    assert (log, kernel.compiled) == ([0], 1)


BASE = (Rows(torch.zeros(16), 32), 5, None)
USUAL = {"SIZE": 64, "HEAL": None}


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ((Rows(torch.zeros(16, dtype=torch.bfloat16), 32), 5, None), {}),
        ((Rows(torch.zeros(16)[1:], 32), 5, None), {}),
        ((Rows(torch.zeros(16), 33), 5, None), {}),
        ((Rows(torch.zeros(16), 1), 5, None), {}),
        ((Rows(torch.zeros(16), 2**32), 5, None), {}),
        ((Rows(torch.zeros(16), None), 5, None), {}),
        ((Rows(torch.zeros(16), 32), 5, torch.zeros(1)), {}),
        ((Rows(torch.zeros(16), 32), 5.0, None), {}),
        ((Rows(torch.zeros(16), 32), True, None), {}),
        ((Rows(torch.zeros(16), 32), Size(1, 1, 5, 2**31), None), {}),
        (BASE, {"SIZE": 32}),
        (BASE, {"num_warps": 8}),
    ],
)
def test_what_needs_another_kernel_gets_one(kernel, driver, given, options):
    usual = USUAL | {"num_warps": 4}
    if isinstance(given[1], Size):
        start(kernel, 1, (BASE[0], Size(1, 1, 5, 7), None), **usual)
    else:
        start(kernel, 1, BASE, **usual)
    start(kernel, 1, given, **usual | options)
    assert (kernel.compiled, len(driver.launches)) == (2, 2)


def test_true_is_no_number(kernel, driver):
    for one in (1, True):
        start(kernel, 1, (BASE[0], one, None), **USUAL)
    assert (kernel.compiled, len(driver.launches)) == (2, 2)


def test_another_device_has_its_own(kernel, driver, monkeypatch):
    start(kernel, 1, BASE, **USUAL)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    start(kernel, 1, BASE, **USUAL)
    assert (kernel.compiled, driver.loaded) == (2, [0, 1])


@pytest.mark.parametrize("step", [48, 160])
def test_what_needs_no_other_kernel_is_started_again(kernel, driver, step):
    x = torch.ones(32)
    start(kernel, 1, BASE, **USUAL)
    start(kernel, 1, (Rows(x, step), 7, None), **USUAL)
    assert kernel.compiled == 1
    assert [launch.numbers for launch in driver.launches] == [(BASE[0].at.data_ptr(), 32, 5), (x.data_ptr(), step, 7)]


def test_one_kernel_serves_all_lengths(kernel, driver):
    lengths = (1, 16, 17, 4096, 2**30)
    for n in lengths:
        start(kernel, 1, (BASE[0], Size(8, 1, n, n), None), **USUAL)
    ((_, (_, size, _), _),) = kernel.log
    # what is compiled must not count on a length
    assert all(x % 2 and x > 1 for x in size)
    assert [launch.numbers[2:] for launch in driver.launches] == [(8, 1, n, n) for n in lengths]


# the parts of a call that differ from call to call, each with what no kernel may be compiled for
@pytest.mark.parametrize("kind", [Size, Mask, Stat, Noise])
def test_no_number_of_a_call_is_a_constant(kernel, driver, kind):
    for number in (1, 16, 7):
        start(kernel, 1, (BASE[0], kind(*[number] * len(kind._fields)), None), **USUAL)
    assert kernel.compiled == 1
    assert [launch.numbers[-1] for launch in driver.launches] == [1, 16, 7]


def test_who_wants_to_see_each_launch_sees_it(kernel, driver, monkeypatch):
    kernel.pre_run_hooks = [print]
    start(kernel, 1, BASE, SIZE=64)
    assert kernel.log == [("seen", (1,), BASE, {"SIZE": 64})]
    # a profiler hangs a hook onto every launch
    told = Kernel()
    monkeypatch.setattr(module.triton.knobs.runtime, "launch_enter_hook", type("Chain", (), {"calls": [print]})())
    start(told, 3, BASE, HEAL=7, SIZE=64)
    # constants come in the kernel's order
    assert told.log[1:] == [("told", (3, 1, 1), (*BASE, 64, 7))]
    assert driver.launches == []


def test_arguments_keep_their_forms_and_their_names():
    given = Rows(Spot(1, "b"), 3), (Spot(0, "a"), (None, Spot(1, "b"))), 2.5
    assert hand_over(given, lambda spot: spot.held * 2) == (Rows("bb", 3), ("aa", (None, "bb")), 2.5)
    assert type(hand_over(given, lambda spot: spot.place)[0]) is Rows


def test_heads_lie_as_the_rows_have_them():
    inside = torch.zeros(2, 5, 3, 4).transpose(1, 2)
    assert lay_out(inside, 6, torch.float64).transpose(1, 2).is_contiguous()
    outside = lay_out(inside.contiguous(), 6, torch.float64)
    assert outside.is_contiguous()
    assert outside.shape == (2, 3, 5, 6)
    assert outside.dtype == torch.float64
