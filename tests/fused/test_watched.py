"""Who is told of every operator is told of the kernels too; without such a mode there is no operator."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from regard import attend
from tests.fused.against import BACKEND, draw

pytest.importorskip("triton")

from regard.engine.backends.fused import operators

SHAPES = [(1, 2, 5, 4), (1, 2, 7, 4), (1, 2, 7, 3)]
FORWARD, BACKWARD = "regard.attend_fused.default", "regard.attend_fused_back.default"


class Watch(TorchDispatchMode):
    """Which operators run inside."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))

    def count(self) -> tuple[int, int]:
        return self.seen.count(FORWARD), self.seen.count(BACKWARD)


@pytest.mark.parametrize(("forward", "backward"), [(True, True), (True, False), (False, True)])
def test_a_mode_sees_the_operators(forward, backward):
    leaves, watch = draw(*SHAPES), Watch()
    wanted = torch.autograd.grad(attend(*leaves, backend=BACKEND).sum(), leaves)
    with watch if forward else contextlib.nullcontext():
        out = attend(*leaves, backend=BACKEND)
    with watch if backward else contextlib.nullcontext():
        grads = torch.autograd.grad(out.sum(), leaves)
    assert watch.count() == (forward, backward)
    assert all(torch.equal(a, b) for a, b in zip(grads, wanted, strict=True))


def test_nobody_looks_on_and_there_is_no_operator(monkeypatch):
    for name in ("_whole", "_forward", "_backward"):
        monkeypatch.setattr(operators, name, None)
    leaves = draw(*SHAPES)
    attend(*leaves, backend=BACKEND).sum().backward()
    assert all(x.grad is not None for x in leaves)


def test_a_trace_of_real_tensors_has_the_operator():
    rows = [x.detach() for x in draw(*SHAPES)]
    graph = make_fx(lambda *given: attend(*given, backend=BACKEND), tracing_mode="real")(*rows)
    assert FORWARD in {str(node.target) for node in graph.graph.nodes}
    others = [x.detach() for x in draw(*SHAPES, seed=1)]
    assert torch.equal(graph(*others), attend(*others, backend=BACKEND))


def test_a_checkpoint_keeps_what_the_operator_made():
    leaves, asked = draw(*SHAPES), []

    def choose(ctx, func, *args, **kwargs):
        asked.append((str(func), ctx.is_recompute))
        return CheckpointPolicy.MUST_SAVE if str(func) == FORWARD else CheckpointPolicy.PREFER_RECOMPUTE

    out = checkpoint(
        lambda *given: attend(*given, backend=BACKEND).exp(), *leaves, use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(choose),
    )  # fmt: skip
    grads = torch.autograd.grad(out.sum(), leaves)
    assert (FORWARD, False) in asked
    wanted = torch.autograd.grad(attend(*leaves, backend=BACKEND).exp().sum(), leaves)
    assert all(torch.equal(a, b) for a, b in zip(grads, wanted, strict=True))
