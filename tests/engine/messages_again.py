"""Messages of calls that are made again or differently: in backward, under transforms, without numbers."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import attend
from regard.bias import Alibi, Relative
from regard.core import Score
from regard.core.names import import_plugin
from regard.mask import Causal, Window
from regard.weigh import Entmax
from tests.engine.messages import KEY, META, QUERY, VALUE, rows, terms
from tests.engine.messages_backends import FUSED, on_cuda

NESTED = (
    "query must be a dense tensor, got a nested one: pad it (torch.nested.to_padded_tensor), and say how long each"
    " sequence is by mask=Lengths(...)."
)


def drop(query: Tensor, key: Tensor) -> Tensor:
    return functional.dropout(query @ key.mT, 0.5)


def train(score: Any, backend: str = "tiled", create_graph: bool = False) -> Tensor:
    """The gradient of the query, through a score of one's own."""
    query = QUERY.clone().requires_grad_()
    out = attend(query, KEY, VALUE, score=score, backend=backend)
    return torch.autograd.grad(out.sum(), query, create_graph=create_graph)[0]


def switch_between() -> None:
    layer = nn.Dropout(0.5)

    def score(query: Tensor, key: Tensor) -> Tensor:
        return layer(query @ key.mT)

    out = attend(QUERY.clone().requires_grad_(), KEY, VALUE, score=score, backend="tiled")
    layer.eval()
    out.sum().backward()


def draw_from_elsewhere() -> None:
    generator = torch.Generator().manual_seed(0)

    def score(query: Tensor, key: Tensor) -> Tensor:
        noise = torch.rand(query.shape[-2], key.shape[-2], generator=generator) if query.shape[-2] > 4 else 1.0
        return query @ key.mT * noise

    train(score)


DICE = itertools.count()


def roll(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT * next(DICE)


def compile_twice() -> None:
    query = QUERY.clone().requires_grad_()
    out = torch.compile(lambda x: attend(x, KEY, VALUE, backend="tiled"), backend="eager")(query)
    (grad,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
    grad.sum().backward()


def follow_closure() -> None:
    def loss(scale: Tensor) -> Tensor:
        def score(query: Tensor, key: Tensor) -> Tensor:
            return query @ key.mT * scale

        return attend(QUERY, KEY, VALUE, score=score).sum()

    torch.func.grad(loss)(torch.tensor(2.0))


def batch_grads() -> None:
    query = QUERY.clone().requires_grad_()
    out = attend(query, KEY, VALUE, backend="tiled")
    torch.autograd.grad(out, query, torch.ones(2, *out.shape), is_grads_batched=True)


@dataclass(frozen=True, repr=False)
class Boast(Score):
    """A dot product that has no rows."""

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.mT

    def as_dot(self, query: Tensor, key: Tensor) -> None:
        return None


def call(term: Any) -> Callable[[], Any]:
    """A term asked for a row of pairs, outside of any call."""
    return lambda: term(0, 0, 0, torch.arange(3))


UNSETTLED = "{0} has no {1} before a call is known: give it, or call {0}.settle(sizes)."
MESSAGES: list[tuple[str, Callable[[], Any]]] = [
    # --- terms that do not know their call
    (UNSETTLED.format("Causal()", "offset"), call(Causal())),
    (UNSETTLED.format("Window(before=1, after=2)", "offset"), call(Window(1, 2))),
    (UNSETTLED.format("Relative(table=float32[2, 6])", "offset"), call(Relative(torch.zeros(2, 6)))),
    (UNSETTLED.format("Alibi()", "slopes"), call(Alibi())),
    (UNSETTLED.format("Alibi(slopes=float32[2])", "offset"), call(Alibi(torch.ones(2)))),
    (
        "Boast() must have rows from as_dot(), since its is_dot says so: got None.",
        terms(score=Boast(), backend="sdpa"),
    ),
    # --- what a function draws
    (
        "score function drop draws random numbers, and backend='compiled' would draw others on the way back."
        " Use backend='tiled'.",
        lambda: train(drop, "compiled"),
    ),
    (
        "score function score drew other random numbers in backward than in forward: let it draw as many on each tile,"
        " and change nothing between (train() or eval()), or use backend='reference'.",
        switch_between,
    ),
    (
        "score function drop draws random numbers, which second derivatives cannot draw again."
        " Use backend='reference'.",
        lambda: train(drop, create_graph=True).sum().backward(),
    ),
    (
        "score function score drew from a generator on one tile that it did not draw from on the first row."
        " Let it use the same generators on every tile.",
        draw_from_elsewhere,
    ),
    (
        "score function roll gave other scores in backward than in forward, so the gradient would be wrong: let it draw"
        " from torch's own generators, on each tile alike, and change nothing it reads in between, or use"
        " backend='reference'.",
        lambda: train(roll),
    ),
    # --- transforms of functions
    (
        "score function score closes over a tensor that torch.func cannot reach: make it a torch.nn.Module with the"
        " tensor as its parameter, or differentiate by torch.autograd.",
        follow_closure,
    ),
    (
        "score function drop draws random numbers, which torch.func would draw anew for each derivative: draw them"
        " before, or differentiate by torch.autograd.",
        lambda: torch.func.grad(lambda x: attend(x, x, x, score=drop).sum())(torch.randn(5, 4)),
    ),
    (
        "is_grads_batched=True and vectorize=True batch derivatives in a way that shows no numbers."
        " Use torch.func.vmap, jacrev or hessian, or vectorize=False.",
        batch_grads,
    ),
    # --- tensors without numbers, or with several lengths
    (
        "Custom(function=drop) needs numbers, and tensors on meta have none.",
        rows(QUERY.to(META), KEY.to(META), VALUE.to(META), score=drop),
    ),
    (
        "Allowed must hold a dense tensor, got a nested one: pad it (torch.nested.to_padded_tensor).",
        terms(mask=torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(2, 5)]).to(torch.bool)),
    ),
    (NESTED, rows(torch.nested.nested_tensor([torch.ones(2, 3, 4), torch.ones(2, 5, 4)], layout=torch.jagged))),
    # --- numbers that are too large
    (
        "Causal offset must lie within -2**62 and 2**62, got 9223372036854775808.",
        terms(mask=Causal(2**63)),
    ),
    (
        "Alibi offset must lie within -2**62 and 2**62, got 9223372036854775808.",
        terms(bias=Alibi(offset=2**63)),
    ),
    (
        "attend has no second derivative within torch.compile: differentiate twice outside of it.",
        compile_twice,
    ),
    (
        "Window reaches must be below 2**63, got before=9223372036854775808, after=0.",
        terms(mask=Window(2**63, 0)),
    ),
    (
        "Window reaches must be below 2**28 where offset is a tensor, got before=268435456, after=0.",
        terms(mask=Window(2**28, 0, offset=torch.tensor([0, 0]))),
    ),
    (
        FUSED.format("beyond an alpha of 2, float32 cannot tell weights near the threshold apart, got 3.0."),
        on_cuda(backend="fused", weigh=Entmax(3.0)),
    ),
    # --- terms of other packages
    (
        "entry point regard.scores own is declared by several packages, as a:Own and b:Own: remove all but one.",
        lambda: import_plugin("scores", "own", "a:Own and b:Own", "", operator.eq),
    ),
    (
        "entry point regard.scores own=json:Own cannot be imported (module 'json' has no attribute 'Own'): mend or"
        " remove the package that declares it.",
        lambda: import_plugin("scores", "own", "json:Own", "", operator.eq),
    ),
    (
        "entry point regard.scores own=json:loads must be its name: mend or remove the package that declares it.",
        lambda: import_plugin("scores", "own", "json:loads", "must be its name", operator.eq),
    ),
]
