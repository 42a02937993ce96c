"""Score functions that draw random numbers: backward sees the numbers that forward drew."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn import functional

from regard import RegardError, attend
from regard.mask import Causal, Full
from regard.weigh import Sigmoid, Softmax, Sparsemax
from tests.layouts import cut
from tests.primes import noise
from tests.tolerances import assert_all_close

ROWS = [3 * noise(2, 2, 5, 3, seed=1), 3 * noise(2, 2, 7, 3, seed=2), noise(2, 2, 7, 3, seed=3)]
NAMES = ["output", "query", "key", "value"]


def drop(query: Tensor, key: Tensor) -> Tensor:
    return functional.dropout(query @ key.mT, 0.5)


def differentiate(score: Any, seed: int = 4, **options: Any) -> tuple[Tensor, ...]:
    rows = [x.clone().requires_grad_() for x in ROWS]
    torch.manual_seed(seed)
    out = attend(*rows, score=score, **options)
    # whatever is drawn in between must not matter
    torch.rand(3)
    return out.detach(), *torch.autograd.grad(out.square().sum(), rows)


@pytest.mark.parametrize("weigh", [Softmax(), Sigmoid(), Sparsemax()], ids=repr)
@pytest.mark.parametrize("mask", [Full(), Causal()], ids=repr)
def test_one_tile_draws_as_the_whole_does(weigh, mask):
    found, expected = (
        differentiate(drop, weigh=weigh, mask=mask, backend=backend) for backend in ("tiled", "reference")
    )
    assert_all_close(found, expected, NAMES)


def test_what_is_drawn_differs_from_call_to_call():
    one, other = (differentiate(drop, seed, backend="tiled") for seed in (4, 5))
    assert not torch.equal(one[0], other[0])
    # and the generator goes on as if the score had been computed once
    torch.manual_seed(4)
    attend(*ROWS, score=drop, backend="reference")
    after = torch.rand(())
    torch.manual_seed(4)
    attend(*(x.clone().requires_grad_() for x in ROWS), score=drop, backend="tiled").sum().backward()
    assert torch.rand(()) == after


def test_backward_leaves_the_generators_where_they_are():
    drawn = []
    for goes_back in (True, False):
        torch.manual_seed(4)
        out = attend(*(x.clone().requires_grad_() for x in ROWS), score=drop, backend="tiled")
        # whatever was drawn since, nobody draws twice
        torch.rand(3)
        if goes_back:
            out.sum().backward()
        drawn.append(torch.rand(()))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("mask", [Full(), Causal()], ids=repr)
def test_many_tiles_have_the_gradient_of_what_they_drew(mask):
    generator = torch.Generator()

    def thin(query: Tensor, key: Tensor, own: torch.Generator | None) -> Tensor:
        noise = torch.rand(query.shape[-2], key.shape[-2], generator=own, dtype=query.dtype)
        return query @ key.mT * (noise > 0.5) + noise

    for own in (None, generator):

        def compute(*rows: Tensor, own: torch.Generator | None = own) -> Tensor:
            torch.manual_seed(6)
            generator.manual_seed(7)
            return attend(*rows, score=partial(thin, own=own), mask=mask, backend="tiled")

        with cut(1, 2, 2, 3):
            assert gradcheck(compute, [x[:1, :, :4].clone().requires_grad_() for x in ROWS])


@pytest.mark.parametrize("learns", ["rows", "closure"])
@pytest.mark.parametrize("share", [1.0, 0.1, 0.01])
def test_other_generators_are_refused_however_little_they_do(share, learns):
    dice = np.random.default_rng(1)
    rows = [noise(1, 1, 64, 8, seed=seed).requires_grad_(learns == "rows") for seed in (1, 2, 3)]
    weight = noise(8, seed=4).requires_grad_(learns == "closure")

    def score(query: Tensor, key: Tensor) -> Tensor:
        hit = dice.random((query.shape[-2], key.shape[-2])) < share
        return (query * weight) @ key.mT - torch.from_numpy(hit * dice.random(hit.shape) * 9)

    out = attend(*rows, score=score, backend="tiled")
    with pytest.raises(RegardError, match="gave other scores in backward"):
        out.sum().backward()


def test_nothing_is_written_to_generators_that_are_not_drawn_from(monkeypatch):
    # another thread may draw from them
    rows, written = [x.clone().requires_grad_() for x in ROWS], []
    monkeypatch.setattr(torch, "set_rng_state", written.append)
    attend(*rows, score=lambda query, key: query @ key.mT, backend="tiled").sum().backward()
    assert not written


def test_a_module_with_dropout_trains():
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.drop = nn.Parameter(torch.ones(3, dtype=torch.float64)), nn.Dropout(0.3)

        def forward(self, query: Tensor, key: Tensor) -> Tensor:
            return self.drop(query * self.weight) @ key.mT

    module = Noisy()
    found, expected = [], []
    for made, backend in ((found, "tiled"), (expected, "reference")):
        torch.manual_seed(8)
        out = attend(*ROWS, score=module, backend=backend)
        made += [out.detach(), *torch.autograd.grad(out.square().sum(), list(module.parameters()))]
    assert_all_close(found, expected, ["output", "weight"])
    # in evaluation nothing is drawn, and nothing is kept
    module.eval()
    torch.autograd.grad(attend(*ROWS, score=module, backend="tiled").sum(), list(module.parameters()))
