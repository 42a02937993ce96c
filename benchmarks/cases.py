"""What is measured: each case is the code a user would write without us, and ours, on the same tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from regard import attend, explain
from regard.layers import AdditiveAttention
from regard.mask import Window
from regard.score import Additive, Gaussian
from regard.weigh import Relu, Sigmoid, Sparsemax

Result = Tensor | tuple[Tensor, ...]
HEADS, WIDTH, REACH = 8, 64, 256


@dataclass(frozen=True)
class Contender:
    """One way to the result. `same` is False for a peer that computes something else, kept for scale."""

    name: str
    call: Callable[[], Result]
    compiles: bool = False
    same: bool = True


@dataclass(frozen=True)
class Case:
    """A row of the table: `make(n)` gives the contenders on tensors of that size, the peer first."""

    name: str
    title: str
    n: int
    quick: int
    make: Callable[[int], list[Contender]]
    # how many calls are timed together, where one is too short for the clock
    loops: int = 1
    # threads of its own, where those of the command line would blur it
    threads: int | None = None


def _draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    noise = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=noise) for shape in shapes]


def _heads(n: int) -> list[Tensor]:
    return _draw(*[(1, HEADS, n, WIDTH)] * 3)


def _forward(call: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Tensor:
    with torch.no_grad():
        return call()


def _train(call: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Result:
    """Forward and backward; gradients come back as values, so that nothing piles up from call to call."""
    out = call()
    return torch.autograd.grad(out, inputs, torch.ones_like(out))


def _runs(
    train: bool, inputs: Sequence[Tensor], calls: dict[str, Callable[[], Tensor]], compiled: str = ""
) -> list[Contender]:
    for x in inputs:
        x.requires_grad_(train)
    run = _train if train else _forward
    return [Contender(name, partial(run, call, inputs), compiles=name == compiled) for name, call in calls.items()]


def _additive(n: int, train: bool) -> list[Contender]:
    query, key, value, weight = inputs = _draw((n, WIDTH), (n, WIDTH), (n, WIDTH), (WIDTH,))
    calls = {
        "eager": lambda: torch.softmax(torch.tanh(query[:, None] + key[None]) @ weight, -1) @ value,
        "regard tiled": lambda: attend(query, key, value, score=Additive(weight), backend="tiled"),
        "regard compiled": lambda: attend(query, key, value, score=Additive(weight), backend="compiled"),
    }
    return _runs(train, inputs, calls, "regard compiled")


def _additive_layer(n: int) -> list[Contender]:
    """The layer beside the textbook's code, with the same parameters, all gradients asked for."""
    queries, keys, values = rows = _draw(*[(8, n, WIDTH)] * 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = AdditiveAttention(WIDTH, WIDTH, WIDTH)

    def textbook() -> Tensor:
        features = torch.tanh(layer.W_q(queries).unsqueeze(2) + layer.W_k(keys).unsqueeze(1))
        return torch.bmm(torch.softmax(layer.w_v(features).squeeze(-1), -1), values)

    calls = {"textbook": textbook, "regard AdditiveAttention": lambda: layer(*rows)}
    return _runs(True, [*rows, *layer.parameters()], calls)


def _window(n: int) -> list[Contender]:
    query, key, value = inputs = _heads(n)
    row, column = torch.arange(n)[:, None], torch.arange(n)
    near = (column <= row) & (column >= row - REACH)
    sdpa = functional.scaled_dot_product_attention
    mask = Window(REACH, 0)
    ours = f"regard auto ({explain(query, key, value, mask=mask).backend})"
    calls = {
        "sdpa, mask written out": lambda: sdpa(query, key, value, attn_mask=near),
        ours: lambda: attend(query, key, value, mask=mask),
    }
    every = Contender("sdpa, no mask at all", partial(_forward, lambda: sdpa(query, key, value), inputs), same=False)
    return [every, *_runs(False, inputs, calls)]


def _dot(n: int) -> list[Contender]:
    query, key, value = inputs = _heads(n)
    calls = {
        "sdpa": lambda: functional.scaled_dot_product_attention(query, key, value),
        f"regard auto ({explain(query, key, value).backend})": lambda: attend(query, key, value),
    }
    return _runs(False, inputs, calls)


def _gaussian(n: int) -> list[Contender]:
    points, x, y = inputs = _draw((n, 1), (n, 1), (n, 1))
    score = Gaussian(4.0)
    calls = {
        "eager": lambda: torch.softmax(-0.5 * ((points - x.T) * 4.0) ** 2, -1) @ y,
        "regard tiled": lambda: attend(points, x, y, score=score, backend="tiled"),
        "regard compiled": lambda: attend(points, x, y, score=score, backend="compiled"),
    }
    return _runs(False, inputs, calls, "regard compiled")


def _sparsemax(n: int, train: bool) -> list[Contender]:
    query, key, value = inputs = _heads(n)

    def peer() -> Tensor:
        from entmax import sparsemax  # type: ignore[import-untyped]

        weights: Tensor = sparsemax(query @ key.mT / WIDTH**0.5, dim=-1)
        return weights @ value

    calls = {
        "entmax package": peer,
        "regard tiled": lambda: attend(query, key, value, weigh=Sparsemax(), backend="tiled"),
    }
    return _runs(train, inputs, calls)


def _relu(n: int) -> list[Contender]:
    query, key, value = inputs = _heads(n)
    calls = {
        "eager": lambda: torch.relu(query @ key.mT / WIDTH**0.5) / n @ value,
        "regard tiled": lambda: attend(query, key, value, weigh=Relu(scale=1 / n), backend="tiled"),
    }
    return _runs(False, inputs, calls)


def _sigmoid(n: int) -> list[Contender]:
    query, key, value = inputs = _heads(n)
    calls = {
        "eager": lambda: torch.sigmoid(query @ key.mT / WIDTH**0.5 - 1.0) @ value,
        "regard tiled": lambda: attend(query, key, value, weigh=Sigmoid(shift=-1.0), backend="tiled"),
    }
    return _runs(False, inputs, calls)


def _bias(n: int) -> list[Contender]:
    query, key, value, bias = inputs = _draw(*[(1, HEADS, n, WIDTH)] * 3, (HEADS, n, n))
    calls = {
        "eager": lambda: torch.softmax(query @ key.mT / WIDTH**0.5 + bias, -1) @ value,
        "regard tiled": lambda: attend(query, key, value, bias=bias, backend="tiled"),
    }
    return _runs(True, inputs, calls)


_WITH_HEADS = f"{HEADS} heads, n = m = {{n}}, width {WIDTH}"

_ADDITIVE = f"additive score, n = m = {{n}}, width {WIDTH}"

CASES = [
    Case("additive", f"{_ADDITIVE}, forward", 2048, 256, partial(_additive, train=False)),
    Case("additive-train", f"{_ADDITIVE}, forward and backward", 2048, 256, partial(_additive, train=True)),
    Case(
        "additive-layer", f"AdditiveAttention, batch 8, n = m = {{n}}, hidden {WIDTH}, forward and backward;"
        " target 2.5 × and at most 96 MiB", 1024, 128, _additive_layer,
    ),
    Case("window", f"window of {REACH} keys back, {_WITH_HEADS}, forward", 16384, 2048, _window),
    Case("dot", f"softmax of dot products, {_WITH_HEADS}, forward; target 0.95 × or more", 2048, 512, _dot),
    # one thread: waking another takes longer than the call itself
    Case(
        "overhead", f"one small call, {_WITH_HEADS}, forward, 1 thread; target at most 60 µs more", 16, 16, _dot,
        loops=300, threads=1,
    ),
    Case("gaussian", "Gaussian kernel in one dimension, n = m = {n}, forward", 20000, 2000, _gaussian),
    Case("sparsemax", f"sparsemax, {_WITH_HEADS}, forward", 1024, 256, partial(_sparsemax, train=False)),
    Case(
        "sparsemax-train", f"sparsemax, {_WITH_HEADS}, forward and backward", 1024, 256,
        partial(_sparsemax, train=True),
    ),
    Case("relu", f"ReLU weights, {_WITH_HEADS}, forward", 2048, 512, _relu),
    Case("sigmoid", f"sigmoid weights, {_WITH_HEADS}, forward", 2048, 512, _sigmoid),
    Case("bias-train", f"learned dense bias, {_WITH_HEADS}, forward and backward", 1024, 256, _bias),
]  # fmt: skip


def find_case(name: str) -> Case:
    """The case of that name; the caller has seen to it that there is one."""
    return next(case for case in CASES if case.name == name)
