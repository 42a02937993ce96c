"""Terms that inherit from ours and mean another thing: no backend may take them for what they inherit from."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from regard import attend, explain, look
from regard.core import Mask
from regard.engine.backends.fused.refuse import refuse_terms
from regard.mask import Causal, Document, Full, Lengths, Window
from regard.score import Cosine, Dot
from regard.weigh import Relu, Softmax


@dataclass(frozen=True, repr=False)
class Opposite(Dot):
    def __call__(self, query, key):
        return -super().__call__(query, key)


@dataclass(frozen=True, repr=False)
class Squared(Cosine):
    def __call__(self, query, key):
        return super().__call__(query, key).square()


@dataclass(frozen=True, repr=False)
class Sharp(Softmax):
    """Softmax of doubled scores."""

    def __call__(self, scores, allowed=None, tile=None):
        return super().__call__(2 * scores, allowed, tile)

    def step(self, scores, allowed, peak):
        return super().step(2 * scores, allowed, peak)

    def recompute(self, scores, stat):
        return super().recompute(2 * scores, stat)

    def gradient(self, weights, grad, mean, stat):
        return 2 * super().gradient(weights, grad, mean, stat)


@dataclass(frozen=True, repr=False)
class Cubed(Relu):
    def weight(self, scores):
        return scores.relu() ** 3

    def derivative(self, scores, weights):
        return 3 * scores.relu() ** 2


TERMS = [{"score": Opposite()}, {"score": Squared()}, {"weigh": Sharp()}, {"weigh": Cubed()}]


def draw():
    noise = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, n, 4, generator=noise, requires_grad=True) for n in (5, 7, 7)]


@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_each_backend_computes_their_own_definition(terms):
    rows = draw()
    expected = attend(*rows, **terms, backend="reference")
    for backend in ("auto", "tiled"):
        found = attend(*rows, **terms, backend=backend)
        torch.testing.assert_close(found, expected)
        grads = [torch.autograd.grad(x.sin().sum(), rows, retain_graph=True) for x in (found, expected)]
        for pair in zip(*grads, strict=True):
            torch.testing.assert_close(*pair)


@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_kernels_of_ours_are_not_theirs(terms):
    plan = explain(*draw(), **terms)
    (name,) = (type(term).__name__ for term in terms.values())
    assert plan.backend == "tiled"
    assert refuse_terms(plan.call) == f"{name} has no kernel."


def skip_odd(kind):
    """A mask that inherits, and allows no odd key."""

    class Even(kind):
        def __call__(self, b, h, i, j):
            return super().__call__(b, h, i, j) & (j % 2 == 0)

        # neither of what ours make faster is true of it
        def covers(self, tile):
            return False

        tile = Mask.tile

    return dataclass(frozen=True, repr=False, eq=False)(Even)


SEGMENTS = torch.tensor([0, 0, 1, 1, 1, 2, 2])
MASKS = [
    *((Full, ()), (Causal, ()), (Causal, (2,)), (Window, (2, 1))),
    *((Lengths, (torch.tensor([5]),)), (Document, (SEGMENTS, SEGMENTS[:5]))),
]


@pytest.mark.parametrize("backend", ["tiled", "sdpa", "fused"])
@pytest.mark.parametrize(("kind", "fields"), MASKS, ids=lambda x: getattr(x, "__name__", None))
def test_each_backend_keeps_to_their_own_mask(kind, fields, backend):
    if backend == "fused":
        pytest.importorskip("triton")
    device = "cuda" if backend == "fused" and torch.cuda.is_available() else "cpu"
    rows = [x.detach().to(device) for x in draw()]
    mask = skip_odd(kind)(*(x.to(device) if isinstance(x, torch.Tensor) else x for x in fields))
    expected = attend(*rows, mask=mask, backend="reference")
    torch.testing.assert_close(attend(*rows, mask=mask, backend=backend), expected)
    # which is not what the other mask allows
    assert not expected.allclose(attend(*rows, mask=kind(*fields), backend="reference").to(device))


def test_a_look_does_not_take_them_for_softmax():
    query, key, _ = draw()
    seen = look(query, key, weigh=Sharp(), keep=True)
    assert seen.query is None
    assert seen.why == "not kept: Sharp is not softmax"
