"""What is kept of a mask, and of a whole call with it, where tensors count their changes: as here, so on CUDA."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard import attend
from regard.bias import Alibi
from regard.engine import known, run
from regard.engine.backends import fused, sdpa
from regard.engine.backends.fused import ops, read
from regard.mask import Causal, Document, Lengths
from tests.fused.against import DEVICE, draw
from tests.tolerances import assert_all_close

MASKS = {
    "lengths": (Lengths, [3, 5], [1, 6]),
    "documents": (Document, [[0, 0, 0, 1, 1, 1]] * 2, [[0, 1, 1, 1, 2, 2]] * 2),
}


@pytest.fixture(params=MASKS)
def made(request, monkeypatch):
    """A mask of a tensor, the tensor, and other numbers for it; nothing is kept of calls before."""
    monkeypatch.setattr(known, "COUNTING", frozenset({"cpu", "cuda"}))
    monkeypatch.setattr(known, "_known", {})
    monkeypatch.setattr(fused, "decline", lambda call: None)
    monkeypatch.setattr(sdpa, "refuse", lambda call: "not asked.")
    make, numbers, others = MASKS[request.param]
    numbers, others = (torch.tensor(x, device=DEVICE) for x in (numbers, others))
    return make, numbers, others


def call(make, numbers, backend="auto", **terms):
    rows = draw((2, 2, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8))
    out = attend(*rows, mask=make(numbers), backend=backend, **terms)
    return [out, *torch.autograd.grad(out.square().sum(), rows)]


@pytest.mark.parametrize("terms", [{}, {"bias": Alibi()}], ids=["bare", "ALiBi"])
def test_the_same_mask_is_replayed_and_another_is_read(made, terms, monkeypatch):
    make, numbers, others = made
    asked = []
    attend_fused = ops.attend_fused
    monkeypatch.setattr(ops, "attend_fused", lambda *given: asked.append(1) or attend_fused(*given))
    wanted = call(make, numbers, "tiled", **terms)
    for _ in range(4):
        assert_all_close(call(make, numbers, **terms), wanted, ["output", "query", "key", "value"])
    assert len(asked) == 2
    numbers.copy_(others)
    wanted = call(make, others, "tiled", **terms)
    for _ in range(2):
        assert_all_close(call(make, numbers, **terms), wanted, ["output", "query", "key", "value"])
    assert_all_close(call(make, others.clone(), **terms), wanted, ["output", "query", "key", "value"])


def test_a_graph_makes_what_it_reads_and_nobody_else_has_it(made, monkeypatch):
    make, numbers, _ = made
    for _ in range(3):
        call(make, numbers)
    (kind,) = known._known.values()
    kept, apart = kind.plan.call.kept["again"], []
    take_apart = read.take_apart
    monkeypatch.setattr(read, "take_apart", lambda mask: apart.append(mask) or take_apart(mask))
    for module in (known, read):
        monkeypatch.setattr(module, "is_capturing", lambda: True)
    call(make, numbers)
    assert len(apart) == 1
    # nor where somebody looks on, so that nothing is replayed
    seen = []
    run.OBSERVERS.append(lambda *given: seen.append(given))
    try:
        call(make, numbers)
    finally:
        run.OBSERVERS.pop()
    assert len(seen) == 1
    assert len(apart) == 2
    assert kind.plan.call.kept["again"] is kept


def test_a_causal_call_is_replayed_in_a_graph(made, monkeypatch):
    rows = draw((2, 2, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8))
    for _ in range(2):
        wanted = attend(*rows, mask=Causal())
    monkeypatch.setattr(known, "is_capturing", lambda: True)
    monkeypatch.setattr(ops, "attend_fused", lambda *given: pytest.fail("planned again"))
    assert torch.equal(attend(*rows, mask=Causal()), wanted)
