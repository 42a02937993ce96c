"""Calls within torch.compile: one graph, forward and backward, and the numbers of a call outside.

"aot_eager" traces as the default backend does, and compiles nothing. `fused` has operators of its own; the others go
through engine/custom_op.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from regard import RegardError, attend
from regard.bias import Alibi, Relative
from regard.core import Pointwise, Score
from regard.engine.backends import fused
from regard.mask import Causal, Document, Edges, Grid, Lengths, Window
from regard.score import Additive, Cosine, Dot, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax
from tests.fused.against import BACKEND, DEVICE
from tests.fused.goes import go
from tests.tolerances import assert_close
from tests.wide import ALL, wide

pytest.importorskip("triton")

Make = Callable[[Tensor, Tensor], dict[str, Any]]


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE, requires_grad=True)


def place(*numbers: int) -> Tensor:
    return torch.tensor(numbers, device=DEVICE)


def differentiate(function: Callable[..., Tensor], leaves: Sequence[Tensor]) -> list[Tensor | None]:
    out = function(*leaves)
    torch.manual_seed(1)
    return [out.detach(), *torch.autograd.grad(out, leaves, torch.randn_like(out), allow_unused=True)]


def check(
    make: Make,
    sizes: Sequence[tuple[int, int]],
    inside: bool = True,
    learned: Sequence[Tensor] = (),
    backend: str = BACKEND,
) -> int:
    """The same as without compile at each size, in whole graphs; how many were made."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")

    def layer(query: Tensor, key: Tensor, value: Tensor, *learned: Tensor, **given: Any) -> Tensor:
        terms = make(*(learned or (query, key))) if inside else given
        # something before and after, as in a model
        return torch.tanh(attend(query * 2, key, value + 1, **terms, backend=backend))

    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for n, m in sizes:
        rows = [draw(1, 2, length, 4) for length in (n, m, m)]
        leaves = [*rows, *learned]
        given = {} if inside else make(*(learned or rows[:2]))
        answers = [differentiate(partial(function, **given), leaves) for function in (compiled, layer)]
        for one, other in zip(*answers, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert_close(one, other, f"at {n}×{m}")
    return int(counter.frame_count)


CASES: dict[str, Make] = {
    "plain": lambda q, k: {},
    "causal": lambda q, k: {"mask": Causal()},
    "window": lambda q, k: {"mask": Window(3, 2), "score": Dot(cap=2.0), "weigh": Sigmoid(shift=-1.0)},
    "both": lambda q, k: {"mask": Causal() & Window(3, 2), "weigh": Relu(power=2, scale=0.5)},
    "either": lambda q, k: {"mask": Causal(-1) | Window(1, 1), "bias": Alibi()},
    "grid": lambda q, k: {"mask": Grid(2, 3, radius=(1, 0)), "score": Gaussian(0.5)},
    "lengths": lambda q, k: {"mask": Lengths(place(4)), "weigh": Entmax()},
    "segments": lambda q, k: {"mask": Document(place(0, 0, 0, 1, 1, 2)), "score": Cosine()},
    "edges": lambda q, k: {"mask": Causal() & Edges(place(0, 1, 5, 5), place(0, 0, 2, 4)), "score": Cosine()},
    "tensor": lambda q, k: {"mask": torch.arange(6, device=DEVICE) % 3 == 0, "weigh": Hard()},
}


# by name, or what a call without a name takes
BACKENDS = [BACKEND, "auto", "tiled", "reference"]
# all but the first go through one operator: `auto` stands for them
FEW = BACKENDS if ALL else [BACKEND, "auto"]
# a case of which the interpreter takes seconds
SLOW = {} if ALL else set(CASES) - {"plain", "both"}


@pytest.mark.parametrize(
    ("name", "backend"), [(name, way) for name in CASES for way in FEW if way != BACKEND or name not in SLOW]
)
def test_one_graph(name, backend):
    assert check(CASES[name], [(6, 6)], backend=backend) == 1


LEARNED: dict[str, tuple[Make, tuple[int, ...], tuple[int, ...]]] = {
    "additive, dense": (
        lambda weight, bias: {"score": Additive(weight), "bias": bias, "mask": Causal()},
        (4,),
        (2, 1, 6),
    ),
    "sink, relative": (lambda sink, table: {"weigh": Softmax(sink), "bias": Relative(table)}, (2,), (2, 8)),
}


@pytest.mark.parametrize("backend", FEW)
@pytest.mark.parametrize(
    ("name", "inside"),
    [(name, inside) for at, name in enumerate(LEARNED) for inside in ([True, False] if ALL else [at == 0])],
)
def test_learned(name, inside, backend):
    make, *shapes = LEARNED[name]
    assert check(make, [(6, 6)], inside, [draw(*shape) for shape in shapes], backend) == 1


MANY = [(4, 6), (5, 7), (6, 9), (6, 4)] if ALL else [(4, 6), (6, 9), (6, 4)]


@wide
def test_sizes_that_change_do_not_compile_each_time_anew():
    # the diagonal moves with the sizes: m - n must not be a constant of the graph
    assert check(lambda q, k: {"mask": Causal(), "bias": Relative(q.new_ones(2, 8))}, MANY) <= 2


@wide
def test_one_query_and_keys_that_grow():
    assert check(lambda q, k: {"mask": Window(3, 0), "bias": Alibi()}, [(1, m) for m in range(3, 6)]) <= 2


@wide
def test_bits_of_any_size():
    assert check(lambda q, k: {"mask": Causal() | Window(1, 1)}, [(4, 6), (5, 7), (6, 20)]) == 2


@wide
def test_numbers_that_follow_the_sizes():
    # torch has operators with symbolic integers, not numbers: one graph for each
    check(lambda q, k: {"weigh": Relu(scale=1 / k.shape[-2])}, [(4, 6), (5, 7)])


def compile_whole(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("backend", FEW)
def test_dropout_and_draws_are_those_of_the_seed(backend):
    rows = [draw(1, 2, 6, 4) for _ in range(3)]

    def layer(*rows: Tensor) -> Tensor:
        return attend(*rows, dropout=0.5, backend=backend) + attend(*rows, weigh=Hard("sample"), backend=backend)

    made = []
    for function in (compile_whole(layer), layer):
        torch.manual_seed(3)
        made.append([function(*rows), function(*rows)])
    assert not torch.equal(*(x.detach() for x in made[1]))
    for one, other in zip(*made, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize(
    "shapes", [((3, 5, 4),) * 3, ((6, 4),) * 3, ((2, 1, 4, 6, 4), (1, 3, 2, 7, 4), (2, 3, 2, 7, 5))]
)
def test_other_axes(shapes):
    rows = [draw(*shape) for shape in shapes]
    compiled = compile_whole(partial(attend, mask=Causal(), backend="tiled"))
    for one, other in zip(
        differentiate(compiled, rows), differentiate(partial(attend, mask=Causal(), backend="tiled"), rows), strict=True
    ):
        assert_close(one, other)


def test_a_function_as_score_breaks_the_graph_and_is_right():
    rows = [draw(1, 2, 6, 4) for _ in range(3)]

    def layer(*rows: Tensor) -> Tensor:
        return attend(*rows, score=lambda q, k: q @ k.mT, mask=Causal())

    torch._dynamo.reset()
    assert_close(torch.compile(layer, backend="aot_eager")(*rows), layer(*rows))


def test_autocast_and_no_grad():
    rows = [draw(1, 2, 6, 4) for _ in range(3)]

    @torch.no_grad()
    def layer(*rows: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            return attend(*rows, score=Cosine(), mask=Causal(), backend=BACKEND)

    assert_close(compile_whole(layer)(*rows), layer(*rows))


def test_auto_asks_without_a_break(monkeypatch):
    # as on a device
    monkeypatch.setattr(fused, "decline", lambda call: None)
    rows = [draw(1, 2, 6, 4) for _ in range(3)]

    def layer(*rows: Tensor) -> Tensor:
        return attend(*rows, weigh=Entmax(), mask=Causal())

    assert_close(compile_whole(layer)(*rows), layer(*rows))


def test_a_term_of_ones_own_is_not_mistaken_for_ours():
    @dataclass(frozen=True, repr=False)
    class Softmax(Pointwise):
        def weight(self, scores: Tensor) -> Tensor:
            return scores.square()

        def derivative(self, scores: Tensor, weights: Tensor) -> Tensor:
            return 2 * scores

    rows = [draw(1, 2, 6, 4) for _ in range(3)]

    def layer(*rows: Tensor) -> Tensor:
        return attend(*rows, weigh=Softmax(), mask=Causal(), backend="tiled")

    torch._dynamo.reset()
    for one, other in zip(
        differentiate(torch.compile(layer, backend="aot_eager"), rows), differentiate(layer, rows), strict=True
    ):
        assert_close(one, other)


def test_a_term_first_seen_by_the_compiler():
    @dataclass(frozen=True, repr=False, eq=False)
    class Scaled(Score):
        weight: Tensor

        def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
            return query * self.weight, key, 0.5

    rows = [draw(1, 2, 6, 4) for _ in range(4)]

    def layer(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        return attend(query, key, value, score=Scaled(weight), backend=BACKEND)

    one = differentiate(compile_whole(layer), rows)
    for x, y in zip(one, differentiate(layer, rows), strict=True):
        assert_close(x, y)


@pytest.mark.parametrize(("backend", "how"), [("auto", ""), ("tiled", ""), (BACKEND, "again")])
def test_poison_under_a_mask_is_healed_in_a_graph(backend, how, monkeypatch):
    if how:
        go(monkeypatch, how)
    rows = [draw(1, 2, 6, 4).detach() for _ in range(3)]
    rows[2][:, :, 4:] = torch.nan
    options: dict[str, Any] = {"mask": Lengths(place(4)), "backend": backend}
    found = compile_whole(partial(attend, **options))(*rows)
    assert found.isfinite().all()
    assert_close(found, attend(*rows, **options))


@pytest.mark.parametrize("mask", [Causal(1.5), Grid(2, 2)], ids=repr)
def test_complaints_are_the_same(mask):
    rows = [draw(1, 2, 6, 4) for _ in range(3)]
    with pytest.raises(RegardError) as plain:
        attend(*rows, mask=mask, backend=BACKEND)
    torch._dynamo.reset()
    with pytest.raises(RegardError) as compiled:
        torch.compile(attend, backend="aot_eager")(*rows, mask=mask, backend=BACKEND)
    assert str(plain.value) == str(compiled.value)


def test_a_tangent_through_a_compiled_function_is_right():
    # an operator in a graph would give zeros
    leaf, tangent = draw(1, 2, 5, 4).detach(), draw(1, 2, 5, 4).detach()

    def push(leaf, tangent):
        return torch.func.jvp(lambda x: attend(x, x, x, mask=Causal(), backend="tiled"), (leaf,), (tangent,))[1]

    assert_close(torch.compile(push, backend="eager")(leaf, tangent), push(leaf, tangent))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="attend has no forward-mode derivative in a compiled function"):
        torch.compile(push, backend="eager", fullgraph=True)(leaf, tangent)
