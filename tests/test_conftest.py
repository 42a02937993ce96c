"""The promises of conftest.py itself."""

import os

import pytest
import torch

from tests.conftest import keep_threads

MADE = {
    "empty": lambda **kw: torch.empty(3, 5, **kw),
    "empty_like": lambda **kw: torch.empty_like(torch.zeros(3, 5), **kw),
    "empty_strided": lambda **kw: torch.empty_strided((3, 5), (5, 1), **kw),
    "new_empty": lambda **kw: torch.zeros(2).new_empty((3, 5), **kw),
}


@pytest.mark.parametrize("door", MADE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_uninitialised_memory_is_nan(door, dtype):
    out = MADE[door](dtype=dtype)
    assert out.shape == (3, 5)
    assert out.dtype == dtype
    assert out.isnan().all()


@pytest.mark.parametrize("door", MADE)
def test_filling_changes_nothing_else(door):
    leaf = MADE[door](requires_grad=True)
    assert leaf.requires_grad
    assert leaf.is_leaf
    assert MADE[door](dtype=torch.int64).dtype == torch.int64


def test_filling_keeps_device_contexts():
    with torch.device("meta"):
        assert torch.empty(2).is_meta


def test_filled_empty_can_be_traced():
    def double(x):
        out = torch.empty_like(x)
        out.copy_(x)
        return out * 2

    # aot_eager: dynamo and autograd see the filled function, and no compiler is needed
    out = torch.compile(double, fullgraph=True, backend="aot_eager")(torch.ones(3))
    assert out.tolist() == [2, 2, 2]


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="not in an xdist worker")
def test_a_worker_has_one_thread():
    assert torch.get_num_threads() == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled where there is a GPU")
def test_without_a_gpu_triton_interprets():
    triton = pytest.importorskip("triton")
    # read when it was imported: set too late, it would not be there
    assert triton.knobs.runtime.interpret
    assert isinstance(triton.jit(lambda: None), triton.runtime.interpreter.InterpretedFunction)


@pytest.mark.gpu
def test_gpu_tests_see_a_gpu():
    assert torch.empty(3, device="cuda").isnan().all()


def test_threads_that_a_test_sets_do_not_outlive_it():
    before = torch.get_num_threads()
    with keep_threads():
        torch.set_num_threads(before + 2)
    assert torch.get_num_threads() == before
