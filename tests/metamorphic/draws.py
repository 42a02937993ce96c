"""Random small calls for the laws: a score, a weigher and tensors, the same ones for the same number."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.core import Mask, Sizes
from regard.mask import Allowed, Causal, Document, Edges, Full, Grid, Lengths, Window
from regard.score import Additive, Bilinear, Concat, Cosine, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum

DRAWS = range(24)
# rounding, in units of float64's last place of the largest number: the laws hold exactly, the arithmetic does not
UNITS = 2**12


@dataclass
class Drawn:
    dice: random.Random
    noise: torch.Generator
    b: int
    h: int
    g: int
    n: int
    m: int
    d: int
    e: int
    query: Tensor
    key: Tensor
    value: Tensor
    score: Any
    weigh: Any

    def tensor(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.noise, dtype=torch.float64)

    def bools(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.noise) < 0.6

    @property
    def terms(self) -> dict[str, Any]:
        return {"score": self.score, "weigh": self.weigh}

    @property
    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    @property
    def sizes(self) -> Sizes:
        return Sizes((self.b,), self.h, self.g, self.n, self.m, self.d, self.d, self.e, torch.float64)


def user_score(query: Tensor, key: Tensor) -> Tensor:
    return torch.sin(query @ key.transpose(-1, -2))


def draw(number: int, square: bool = False) -> Drawn:
    dice = random.Random(number)
    noise = torch.Generator().manual_seed(number)
    b, (h, g) = dice.randint(1, 3), dice.choice(((1, 1), (2, 2), (4, 2), (3, 1), (6, 3)))
    n, m = dice.randint(1, 40), dice.randint(1, 40)
    n = m if square else n
    d, e = dice.randint(1, 9), dice.randint(1, 9)
    shapes = ((b, h, n, d), (b, g, m, d), (b, g, m, e))
    query, key, value = (torch.randn(s, generator=noise, dtype=torch.float64) for s in shapes)
    drawn = Drawn(dice, noise, b, h, g, n, m, d, e, query, key, value, None, None)
    weight = drawn.tensor(h, d)
    # every score and every weigher comes up in 24 draws, each time in other company
    drawn.score = (
        Dot(), Dot(cap=2.0), Bilinear(drawn.tensor(h, d, d)), Cosine(3.0), Additive(weight), Additive(weight, "silu"),
        Concat(weight, drawn.tensor(h, d)), Gaussian(weight), Feature(), user_score,
    )[number % 10]  # fmt: skip
    weighers = (
        Softmax(), Softmax(drawn.tensor(h)), Relu(2, 0.5), Sigmoid(-1.0), Entmax(), Entmax(1.3), Sparsemax(), Hard(),
        # a sum of signed scores may be close to zero
        Sum() if isinstance(drawn.score, Feature) else Softmax(),
    )  # fmt: skip
    drawn.weigh = Sum() if isinstance(drawn.score, Feature) and number % 20 < 10 else weighers[number * 7 % 9]
    return drawn


def draw_mask(drawn: Drawn, depth: int = 2) -> Mask:
    """A mask of the drawn sizes, composed up to `depth` times."""
    b, n, m, dice = drawn.b, drawn.n, drawn.m, drawn.dice
    if depth and dice.random() < 0.6:
        one, two = (draw_mask(drawn, depth - 1) for _ in range(2))
        return dice.choice((one & two, one | two, ~one))

    def whole(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=drawn.noise)

    makers = [
        Full,
        lambda: Lengths(whole(0, m + 1, b)),
        lambda: Lengths(whole(0, m + 1, b, n)),
        lambda: Causal(dice.choice((None, 0, -2, 5))),
        lambda: Causal(whole(-3, m, b)),
        lambda: Window(dice.randint(0, 5), dice.randint(0, 5), dice.choice((None, 0, 3))),
        lambda: Window(dice.randint(0, 5), 0, whole(-3, m, b)),
        lambda: Document(whole(0, 3, b, m), whole(0, 4, n)),
        lambda: Edges(whole(0, n, 2 * n), whole(0, m, 2 * n)),
        lambda: Allowed(drawn.bools(drawn.h, 1, m)),
        lambda: Allowed(drawn.bools(n, m)),
        lambda: Grid(1, m, radius=(0, dice.randint(0, 4))) if n == m else Full(),
    ]
    return dice.choice(makers)()


def assert_same(actual: Tensor, expected: Tensor, what: str = "output", units: float = UNITS) -> None:
    assert actual.shape == expected.shape
    if not expected.numel():
        return
    unit = torch.finfo(torch.float64).eps * max(1.0, expected.detach().abs().max().item())
    off = (actual.detach() - expected.detach()).abs().max().item()
    # written so that NaN fails
    assert off <= units * unit, f"{what} is off by {off / unit:.3g} units in the last place, allowed are {units:g}"


def gradients(out: Tensor, *leaves: Tensor, grad: Tensor | None = None) -> list[Tensor]:
    """Gradients under a fixed, uneven cotangent."""
    if grad is None:
        grad = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).view(out.shape)
    return list(torch.autograd.grad(out, leaves, grad, allow_unused=True, materialize_grads=True))


def as_leaves(*rows: Tensor) -> list[Tensor]:
    return [x.detach().clone().requires_grad_() for x in rows]
