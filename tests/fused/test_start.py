"""Kernels are compiled once for arguments of a sort, side by side, and started again on addresses."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

pytest.importorskip("triton")

from regard.engine.backends.fused import start as module
from regard.engine.backends.fused.kernels.tiles import Size
from regard.engine.backends.fused.launch import lay_out
from regard.engine.backends.fused.start import Starter, start, start_all


class Rows(NamedTuple):
    at: object
    step: object


class Compiled:
    """What a launch is made of, as far as it is used."""

    def __init__(self, log):
        self.function, self.packed_metadata = "function", "metadata"
        self.run = lambda *given: log.append(("start", given[0], given[9:]))
        self.log = log

    def __getitem__(self, grid):
        return lambda *given: self.log.append(("told", grid, given))


class Kernel:
    """What `triton.jit` makes, as far as it is used."""

    arg_names = ("rows", "count", "flag", "SIZE", "HEAL")

    def __init__(self):
        self.log, self.pre_run_hooks = [], []
        self.fn = object()

    def warmup(self, *given, grid, **options):
        self.log.append(("compile", given, options))
        return Compiled(self.log)

    def __getitem__(self, grid):
        return lambda *given, **options: self.log.append(("seen", grid, given, options))


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(module.triton, "JITFunction", Kernel)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: device, raising=False)
    monkeypatch.setattr(module.triton.knobs.runtime, "launch_enter_hook", None)
    return Kernel()


def kinds(kernel) -> list[str]:
    return [entry[0] for entry in kernel.log]


def test_what_is_compiled_gets_addresses_and_constants_in_the_kernels_order(kernel):
    x = torch.zeros(4)
    starters = [Starter(kernel, 7, {"SIZE": 64, "HEAL": heal, "num_warps": 4}) for heal in (False, True)]

    def give(at):
        return Rows(at(x), 3), 5, None

    for _ in range(2):
        start_all(*((starter, give) for starter in starters))
    assert kernel.log[:2] == [
        ("compile", (Rows(x, 3), 5, None), {"SIZE": 64, "HEAL": heal, "num_warps": 4}) for heal in (False, True)
    ]
    assert kernel.log[2:] == 2 * [
        ("start", 7, (Rows(x.data_ptr(), 3), 5, None, 64, heal)) for heal in (False, True)
    ]  # fmt: skip


BASE = (Rows(torch.zeros(16), 32), 5, None)


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
def test_what_needs_another_kernel_gets_one(kernel, given, options):
    usual = {"SIZE": 64, "HEAL": None, "num_warps": 4}
    if isinstance(given[1], Size):
        start(kernel, 1, (BASE[0], Size(1, 1, 5, 7), None), **usual)
    else:
        start(kernel, 1, BASE, **usual)
    start(kernel, 1, given, **usual | options)
    assert kinds(kernel) == ["compile", "start"] * 2


def test_true_is_no_number(kernel):
    for one in (1, True):
        start(kernel, 1, (BASE[0], one, None), SIZE=64, HEAL=None)
    assert kinds(kernel) == ["compile", "start"] * 2


def test_another_device_has_its_own(kernel, monkeypatch):
    start(kernel, 1, BASE, SIZE=64, HEAL=None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    start(kernel, 1, BASE, SIZE=64, HEAL=None)
    assert kinds(kernel) == ["compile", "start"] * 2


@pytest.mark.parametrize("step", [48, 160])
def test_what_needs_no_other_kernel_is_started_again(kernel, step):
    start(kernel, 1, BASE, SIZE=64, HEAL=None)
    start(kernel, 1, (Rows(torch.ones(32), step), 7, None), SIZE=64, HEAL=None)
    assert kinds(kernel) == ["compile", "start", "start"]


def test_one_kernel_serves_all_lengths(kernel):
    for n in (1, 16, 17, 4096, 2**30):
        start(kernel, 1, (BASE[0], Size(8, 1, n, n), None), SIZE=64, HEAL=None)
    assert kinds(kernel) == ["compile", *["start"] * 5]
    (_, (_, size, _), _), *starts = kernel.log
    # what is compiled must not count on a length
    assert all(x % 2 and x > 1 for x in size)
    assert [given[1].n for _, _, given in starts] == [1, 16, 17, 4096, 2**30]


def test_who_wants_to_see_each_launch_sees_it(kernel, monkeypatch):
    kernel.pre_run_hooks = [print]
    start(kernel, 1, BASE, SIZE=64)
    assert kernel.log == [("seen", (1,), BASE, {"SIZE": 64})]
    # a profiler hangs a hook onto every launch
    told = Kernel()
    monkeypatch.setattr(module.triton.knobs.runtime, "launch_enter_hook", type("Chain", (), {"calls": [print]})())
    start(told, 3, BASE, SIZE=64, HEAL=None)
    assert told.log[1:] == [("told", (3, 1, 1), (*BASE, 64, None))]


def test_heads_lie_as_the_rows_have_them():
    inside = torch.zeros(2, 5, 3, 4).transpose(1, 2)
    assert lay_out(inside, 6, torch.float64).transpose(1, 2).is_contiguous()
    outside = lay_out(inside.contiguous(), 6, torch.float64)
    assert outside.is_contiguous()
    assert outside.shape == (2, 3, 5, 6)
    assert outside.dtype == torch.float64
