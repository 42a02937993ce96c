"""Kernels are started by the CUDA driver: each number lies where the kernel reads it, and codes are not passed over."""

from __future__ import annotations

import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import threading

import pytest

pytest.importorskip("triton")

from triton.runtime.errors import OutOfResources

from regard.engine.backends.fused import driver as module
from regard.engine.backends.fused.driver import Function, Open, Ready, count_parameters, flatten
from tests.fused.driving import SHARED, STREAM, THREADS, Made, lend, write_ptx


@pytest.fixture
def driver(monkeypatch):
    return lend(monkeypatch)


def single(number: float) -> float:
    """The nearest number of float32."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


LEAVES = [
    ("*fp32", Open(0)), ("fp32", 0.1), ("i32", -5), ("i64", Open(1)), ("i64", -(2**40)), ("u64", 2**63 + 5),
    ("i1", True), ("i32", Open(2)), ("fp32", -0.0), ("i32", 2**31 - 1), ("fp32", float("inf")), ("*bf16", Open(3)),
]  # fmt: skip


def make(leaves=LEAVES, count=3, **of_made) -> Ready:
    return Ready(Function(Made([kind for kind, _ in leaves], **of_made)), count, leaves)


@pytest.mark.parametrize("notes", [0, 1, 2])
def test_each_number_lies_in_its_parameter(driver, notes):
    ready = make(count=70_000, notes=notes, shared=4096, warps=8)
    assert ready.places == [0, 1, 2, 3]
    expected = (
        2**47 + 16, single(0.1), -5, -3, -(2**40), 2**63 + 5, True, -1, 0.0, 2**31 - 1, float("inf"), 2**63 + 256
    )  # fmt: skip
    # the second time in the memory of the first
    for more in (0, 512):
        ready([2**47 + 16 + more, -3, -1, 2**63 + 256], module.c_void_p(STREAM))
        (launch,) = driver.launches
        assert launch == (
            "kernel", 70_000, 8 * 32, 4096, STREAM, (expected[0] + more, *expected[1:]), (0,) * notes,
        )  # fmt: skip
        assert str(launch.numbers[8]) == "-0.0"
        driver.launches.clear()
    assert len(ready.rooms) == 1


def test_what_is_open_comes_in_the_order_in_which_it_is_named(driver):
    ready = make([("*i32", Open(7)), ("i32", 9), ("*i32", Open(2)), ("i64", Open(5)), ("*i32", Open(7))])
    assert ready.places == [7, 2, 5, 7]
    ready([70, 20, 50, 70], module.c_void_p(0))
    assert driver.launches[0].numbers == (70, 9, 20, 50, 70)


def test_two_threads_do_not_mix_their_numbers(driver):
    ready = make([("*i32", Open(0)), ("i32", 4), ("i64", Open(1))])
    # both have put their numbers down before either is read
    driver.meanwhile = threading.Barrier(2, timeout=20).wait

    def start(number: int) -> None:
        for at in range(50):
            ready([number + at, -number - at], module.c_void_p(number))

    threads = [threading.Thread(target=start, args=(number,)) for number in (1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for number in (1000, 2000):
        mine = [launch.numbers for launch in driver.launches if launch.stream == number]
        assert mine == [(number + at, 4, -number - at) for at in range(50)]
    # and there is no more memory than threads
    assert len(ready.rooms) == 2


def test_a_code_is_an_error_with_the_kernels_name(driver):
    ready = make(name="attend_forward")
    driver.codes = [700]
    with pytest.raises(RuntimeError, match=r"did not start the kernel attend_forward: error 700\.$"):
        ready([1, 2, 3, 4], module.c_void_p(0))
    assert driver.entered == []
    # the next one finds everything in its place
    ready([1, 2, 3, 4], module.c_void_p(0))
    assert driver.launches[0].numbers[0] == 1
    assert len(ready.rooms) == 1


@pytest.mark.parametrize("code", [3, 201])
def test_a_thread_without_a_context_gets_the_devices(driver, monkeypatch, code):
    monkeypatch.setattr(module.torch.cuda, "current_device", lambda: 2)
    ready = make()
    # another device may be current by then
    monkeypatch.setattr(module.torch.cuda, "current_device", lambda: 0)
    driver.codes = [code]
    ready([1, 2, 3, 4], module.c_void_p(0))
    assert driver.loaded == [2]
    assert driver.entered == ["device 2", "context of 42", "set 1234"]
    assert len(driver.launches) == 1


def test_a_context_that_cannot_be_entered_is_named(driver, monkeypatch):
    ready = make()
    driver.codes = [201, 201]
    with pytest.raises(RuntimeError, match=r"did not start the kernel kernel: error 201\.$"):
        ready([1, 2, 3, 4], module.c_void_p(0))
    driver.codes = [201]
    monkeypatch.setattr(driver, "cuCtxSetCurrent", lambda context: 4)
    with pytest.raises(RuntimeError, match=r"has no context on device 0: error 4\.$"):
        ready([1, 2, 3, 4], module.c_void_p(0))
    assert driver.launches == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"shared": SHARED + 1}, f"shared memory, Required: {SHARED + 1}, Hardware limit: {SHARED}"),
        ({"warps": THREADS // 32 + 1}, f"threads, Required: {THREADS + 32}, Hardware limit: {THREADS}"),
    ],
)
def test_what_a_device_has_no_room_for_is_said_before_it_is_started(driver, asked, said):
    # block shapes are measured until one fits
    with pytest.raises(OutOfResources, match=said):
        Function(Made(["i32"], **asked))
    Function(Made(["i32"], shared=SHARED, warps=THREADS // 32))


def test_arguments_are_taken_apart_as_kernels_have_them():
    given = (1.5, (20, None, (1, -3)), None, 64, [7])
    kinds = ("fp32", ("i32", "constexpr", ("constexpr", "i64")), "constexpr", "constexpr", ["u64"])
    assert list(flatten(given, kinds)) == [("fp32", 1.5), ("i32", 20), ("i64", -3), ("u64", 7)]


@pytest.mark.parametrize("types", [["u64"], ["u64", "f32", "u32"], ["u8"] * 40])
def test_parameters_are_counted_by_the_kernels_text(types):
    assert count_parameters(write_ptx(types)) == len(types)
    # as the compiler writes pointers
    assert count_parameters(write_ptx([*types, "u64 .ptr .global .align 1"])) == len(types) + 1


def test_a_compiled_kernel_finds_each_number_of_a_call_in_its_parameter(tmp_path):
    here = pathlib.Path(__file__).parents[2]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env |= {"PYTHONPATH": str(here / "src"), "TRITON_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    code = [sys.executable, "-m", "tests.fused.compiling"]
    done = subprocess.run(code, env=env, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if why := found.get("why"):
        pytest.skip(why)
    types, kinds = found["types"], found["kinds"]
    # what Triton took each argument for is as wide as what its compiler made of it
    assert types[: len(kinds)] == [{"i32": "u32", "fp32": "f32"}.get(kind, "u64") for kind in kinds]
    assert {"*bf16", "i32", "i64", "fp32"} == set(kinds)
    # behind them lie places for notes, at most two
    notes = types[len(kinds) :]
    assert notes in ([], ["u64"], ["u64", "u64"])
    assert len(found["launches"]) == len(found["expected"]) == 2
    for numbers, expected in zip(found["launches"], found["expected"], strict=True):
        assert numbers == [*(single(x) if isinstance(x, float) else x for x in expected), *[0] * len(notes)]
    # nothing that is known of a call holds its tensors
    assert found["kept"] == 0


@pytest.mark.parametrize("number", [1e39, -1e39, 0.1, -0.0])
def test_a_number_beyond_float32_is_infinite(number):
    bits = module._as_bits("fp32", number).to_bytes(8, "little")[:4]
    assert bits == struct.pack("<f", number if abs(number) < 1e38 else math.copysign(math.inf, number))
