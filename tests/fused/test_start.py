"""Kernels are started again only for arguments of the sort that they were compiled for."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

pytest.importorskip("triton")

from regard.engine.backends.fused import start as module
from regard.engine.backends.fused.launch import lay_out
from regard.engine.backends.fused.start import start


class Rows(NamedTuple):
    at: object
    step: object


class Compiled:
    def __init__(self, log):
        self.log = log

    def __getitem__(self, grid):
        return lambda *given: self.log.append(("again", grid, given))


class Kernel:
    """What `triton.jit` makes, as far as it is used."""

    pre_run_hooks = ()
    arg_names = ("rows", "count", "flag", "HEAL", "SIZE")

    def __init__(self):
        self.log = []
        self.fn = object()

    def __getitem__(self, grid):
        def run(*given, **options):
            self.log.append(("first", grid, given, options))
            return Compiled(self.log)

        return run


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(module.triton, "JITFunction", Kernel)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return Kernel()


def kinds(kernel) -> list[str]:
    return [entry[0] for entry in kernel.log]


def test_the_second_call_gets_all_arguments_in_the_kernels_order(kernel):
    given = (Rows(torch.zeros(4), 3), 5, None)
    start(kernel, 7, given, (False, True), SIZE=64, num_warps=4)
    assert kinds(kernel) == ["first", "first"]
    assert [entry[3] for entry in kernel.log] == [
        {"SIZE": 64, "num_warps": 4, "HEAL": False},
        {"SIZE": 64, "num_warps": 4, "HEAL": True},
    ]
    start(kernel, 9, given, (False, True), SIZE=64, num_warps=4)
    assert kernel.log[2:] == [
        ("again", (9, 1, 1), (*given, False, 64)),
        ("again", (9, 1, 1), (*given, True, 64)),
    ]


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
        (BASE, {"SIZE": 32}),
        (BASE, {"num_warps": 8}),
    ],
)
def test_what_triton_compiles_anew_is_compiled_anew(kernel, given, options):
    usual = {"SIZE": 64, "num_warps": 4}
    start(kernel, 1, BASE, (False,), **usual)
    start(kernel, 1, given, (False,), **usual | options)
    assert kinds(kernel) == ["first", "first"]


def test_another_device_has_its_own(kernel, monkeypatch):
    start(kernel, 1, BASE, (False,), SIZE=64)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    start(kernel, 1, BASE, (False,), SIZE=64)
    assert kinds(kernel) == ["first", "first"]


@pytest.mark.parametrize("step", [48, 160])
def test_what_needs_no_other_kernel_is_started_again(kernel, step):
    start(kernel, 1, BASE, (False,), SIZE=64)
    start(kernel, 1, (Rows(torch.ones(32), step), 7, None), (False,), SIZE=64)
    assert kinds(kernel) == ["first", "again"]


def test_who_wants_to_see_each_launch_sees_it(kernel):
    kernel.pre_run_hooks = (print,)
    for _ in range(2):
        start(kernel, 1, BASE, (None,), SIZE=64)
    assert kernel.log == [("first", (1,), BASE, {"SIZE": 64})] * 2


def test_heads_lie_as_the_rows_have_them():
    inside = torch.zeros(2, 5, 3, 4).transpose(1, 2)
    assert lay_out(inside, 6, torch.float64).transpose(1, 2).is_contiguous()
    outside = lay_out(inside.contiguous(), 6, torch.float64)
    assert outside.is_contiguous()
    assert outside.shape == (2, 3, 5, 6)
    assert outside.dtype == torch.float64
