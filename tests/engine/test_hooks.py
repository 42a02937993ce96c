"""What a backend says of itself decides what `attend` hands it."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard import attend
from regard.engine import known
from regard.engine.plan import BACKENDS
from regard.mask import Causal, Full, Window

# 2 × 3 sequences, 4 query heads on 2 key heads
SHAPES = (2, 3, 4, 5, 8), (2, 3, 2, 7, 8), (2, 3, 2, 7, 8)


class NoLook(TorchDispatchMode):
    """Fails where a tensor's contents come to Python: on a GPU that would wait for the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique")
        assert func.overloadpacket.__name__.strip("_") not in {name.strip("_") for name in names}, func
        return func(*args, **(kwargs or {}))


@pytest.fixture
def taken(monkeypatch):
    """What `fused` is handed, on the CPU."""
    calls = []

    def run(call, query, key, value, again=None):
        calls.append((call, query, key, value))
        return torch.ones(*query.shape[:-1], value.shape[-1], dtype=torch.float32)

    monkeypatch.setattr(known, "_known", {})
    monkeypatch.setattr(BACKENDS["fused"], "refuse", lambda call: None)
    monkeypatch.setattr(BACKENDS["fused"], "run", run)
    return calls


def rows(dtype=torch.bfloat16):
    return [torch.randn(shape).to(dtype) for shape in SHAPES]


def test_every_backend_has_both():
    assert {name: (module.LIFTS, module.HANDLES_NAN) for name, module in BACKENDS.items()} == {
        "edges": (True, False),
        "sdpa": (False, False),
        "fused": (False, True),
        "tiled": (True, False),
        "compiled": (True, False),
        "reference": (True, False),
    }


def test_rows_come_folded_and_else_as_they_are(taken):
    out = attend(*rows(), mask=Causal(), backend="fused")
    ((call, *given),) = taken
    assert [tuple(x.shape) for x in given] == [(6, 4, 5, 8), (6, 2, 7, 8), (6, 2, 7, 8)]
    assert all(x.dtype == torch.bfloat16 for x in given)
    assert (call.sizes.h, call.sizes.g, call.mask.offset) == (4, 2, 2)
    assert (out.shape, out.dtype) == ((2, 3, 4, 5, 8), torch.bfloat16)


def test_one_that_lifts_gets_lifted_rows(monkeypatch):
    calls = []
    monkeypatch.setattr(
        BACKENDS["tiled"], "run", lambda call, q, k, v, again=None: calls.append((q, k, v)) or torch.zeros_like(q)
    )
    attend(*rows(), mask=Causal(), backend="tiled")
    assert [tuple(x.shape) for x in calls[0]] == [(6, 4, 5, 8), (6, 4, 7, 8), (6, 4, 7, 8)]
    assert all(x.dtype == torch.float32 for x in calls[0])


def test_one_that_heals_gets_nan_as_it_is(taken):
    query, key, value = rows()
    key[..., 6, :] = torch.nan
    attend(query, key, value, mask=Causal(-1), backend="fused")
    assert taken[0][2][..., 6, :].isnan().all()


@pytest.mark.parametrize("mask", [Full(), Causal(), Causal(-1), Window(2, 1), Window(1, 0, offset=1)], ids=str)
def test_nothing_waits_for_the_device(mask, taken):
    leaves = [x.requires_grad_() for x in rows()]
    with NoLook():
        attend(*leaves, mask=mask, backend="fused")
    assert len(taken) == 1


def test_a_look_would_be_seen():
    with NoLook(), pytest.raises(AssertionError, match="_local_scalar_dense"):
        attend(*rows(), mask=Causal(), backend="tiled")


@pytest.mark.parametrize("backend", ["sdpa", "tiled", "reference"])
def test_autocast_changes_nothing(backend):
    leaves = [x.requires_grad_() for x in rows(torch.float32)]
    plain = attend(*leaves, backend=backend)
    grads = torch.autograd.grad(plain.sum(), leaves)
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(*leaves, backend=backend)
    again = torch.autograd.grad(out.sum(), leaves)
    assert out.dtype == torch.float32
    assert torch.equal(out, plain)
    assert all(torch.equal(a, b) for a, b in zip(grads, again, strict=True))


class Count(TorchDispatchMode):
    """How many operations of torch run inside."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.total += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("train", [False, True])
def test_a_small_call_asks_little_of_torch(train):
    # a look at query, key and value, and the kernel: each operation more is a microsecond or two on every call
    leaves = [torch.randn(1, 2, 16, 8, requires_grad=train) for _ in range(3)]
    with Count() as count:
        attend(*leaves)
    assert count.total <= 12
