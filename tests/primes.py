"""Terms at sizes that are distinct primes, where no axis can be taken for another: what gradients are tested on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard import attend
from regard.bias import Alibi, Dense, Quadratic, Relative
from regard.core import Mask, Sizes
from regard.mask import Allowed, Causal, Document, Edges, Full, Grid, Lengths, Window
from regard.score import Additive, Bilinear, Concat, Cosine, Custom, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum
from tests.layouts import cut
from tests.terms import make_inputs

SIZES = Sizes(lead=(3,), h=2, g=2, n=5, m=7, d=11, c=11, e=13, dtype=torch.float64)
# an image is as long in queries as in keys; its cells cannot be prime on both sides
IMAGE = replace(SIZES, n=6, m=6)
# keys may be wider than queries only under some scores
WIDE_KEYS = 17

# one tile, and three ways to have two along one axis
LAYOUTS = [None, (3, 2, 3, 7), (2, 2, 6, 7), (3, 1, 6, 4)]


@dataclass(frozen=True)
class Recipe:
    """A term as a function of its learned tensors, so that gradients with respect to them can be checked."""

    name: str
    make: Callable[[Sequence[Tensor]], Any]
    tensors: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, term: Any) -> Recipe:
        if term is None or not term.tensors:
            return cls(repr(term), lambda _: term)
        return cls(repr(term), term.with_tensors, term.tensors)


def noise(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_closure(tensors: Sequence[Tensor]) -> Custom:
    """A function of the user's own that closes over what it learns."""
    (weight,) = tensors
    return Custom(lambda query, key: 1.5 + torch.sin(query @ weight @ key.mT))


def scores() -> dict[type, Recipe]:
    h, d, c = SIZES.h, SIZES.d, WIDE_KEYS
    return {
        Additive: Recipe.of(Additive(noise(h, d, seed=1))),
        Bilinear: Recipe.of(Bilinear(noise(h, d, c, seed=2, scale=0.1))),
        Concat: Recipe.of(Concat(noise(h, d, seed=3, scale=0.3), noise(c, seed=4, scale=0.3))),
        Cosine: Recipe.of(Cosine(torch.tensor([1.5, 3.0], dtype=torch.float64))),
        Custom: Recipe("Custom(closure)", make_closure, (noise(d, d, seed=5, scale=0.1),)),
        Dot: Recipe.of(Dot()),
        Feature: Recipe.of(Feature()),
        Gaussian: Recipe.of(Gaussian(noise(h, d, seed=6, scale=0.2))),
    }


def weighs() -> dict[type, Recipe]:
    return {
        Entmax: Recipe.of(Entmax()),
        Hard: Recipe.of(Hard("sample", seed=7)),
        Relu: Recipe.of(Relu(power=2)),
        Sigmoid: Recipe.of(Sigmoid(shift=-0.5)),
        Softmax: Recipe.of(Softmax(sink=torch.tensor([0.3, -0.8], dtype=torch.float64))),
        Sparsemax: Recipe.of(Sparsemax()),
        Sum: Recipe.of(Sum()),
    }


def masks(sizes: Sizes) -> dict[type | str, Mask]:
    b, n, m = sizes.b, sizes.n, sizes.m
    chance = torch.Generator().manual_seed(8)
    draw = lambda low, high, *shape: torch.randint(low, high, shape, generator=chance)  # noqa: E731
    return {
        Allowed: Allowed(torch.rand(b, 1, n, m, generator=chance) < 0.6),
        Causal: Causal(torch.tensor([2, 0, -1])),
        Document: Document(draw(0, 3, b, m), draw(0, 4, n)),
        Edges: Edges(draw(0, n, 9), draw(0, m, 9)),
        Full: Full(),
        Lengths: Lengths(draw(0, m + 1, b, n)),
        Window: Window(2, 1),
        "and": Causal() & Lengths(torch.tensor([m, 0, 4])),
        "or": Window(0, 1, offset=0) | Edges(draw(0, n, 5), draw(0, m, 5)),
        "not": ~Window(0, 0, offset=0),
        **({Grid: Grid(2, 3)} if n == m else {}),
    }


def biases(sizes: Sizes) -> dict[type | None, Recipe]:
    b, h, n, m = sizes.b, sizes.h, sizes.n, sizes.m
    slopes = torch.tensor([0.3, 0.7], dtype=torch.float64)
    bias = {
        None: None,
        Alibi: Alibi(slopes / 4, offset=1),
        Dense: Dense(noise(b, 1, n, m, seed=9, scale=0.3)),
        Relative: Relative(noise(h, 6, seed=10, scale=0.3), max_distance=4),
        **({Quadratic: Quadratic(2, 3, slopes / 10, noise(h, 2, seed=11))} if n == m else {}),
    }
    return {name: Recipe.of(term) for name, term in bias.items()}


@dataclass(frozen=True)
class Case:
    """Terms that fit together, and the function of all leaves that a gradient check looks at."""

    sizes: Sizes
    score: Recipe
    weigh: Recipe
    mask: Mask
    bias: Recipe

    def __str__(self) -> str:
        return f"{self.score.name} × {self.weigh.name} × {self.mask} × {self.bias.name}"

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        # a row sum near zero would make every gradient of Sum enormous: keep all scores on one side of it
        positive = self.weigh.name.startswith("Sum")
        rows = make_inputs(self.sizes, seed=12, positive=positive)
        own = [t.abs() + 0.1 if positive else t.clone() for t in self.score.tensors]
        own += [t.clone() for t in (*self.weigh.tensors, *self.bias.tensors)]
        return *rows, *(t.detach().requires_grad_() for t in own)

    def attend(self, backend: str) -> Callable[..., Tensor]:
        def run(query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> Tensor:
            rest = iter(tensors)
            score, weigh, bias = (
                recipe.make([next(rest) for _ in recipe.tensors]) for recipe in (self.score, self.weigh, self.bias)
            )
            return attend(query, key, value, score=score, weigh=weigh, mask=self.mask, bias=bias, backend=backend)

        return run

    def layout(self) -> AbstractContextManager[None]:
        """One of `LAYOUTS`, by content: a new case moves no other to another layout."""
        layout = LAYOUTS[zlib.crc32(str(self).encode()) % len(LAYOUTS)]
        return nullcontext() if layout is None else cut(*layout)


def list_cases(score: Recipe, weigh: Recipe) -> Iterator[Case]:
    """A score and a weigher with every mask and bias, at 5 queries and 7 keys where these suit, else on an image."""
    wide = score.name.startswith(("Bilinear", "Concat"))
    tables = [(sizes, masks(sizes), biases(sizes)) for sizes in (SIZES, IMAGE)]
    for sizes, of_mask, of_bias in tables:
        for mask, allowed in of_mask.items():
            for bias, added in of_bias.items():
                on_image = mask is Grid or bias is Quadratic
                if on_image == (sizes is IMAGE):
                    yield Case(replace(sizes, c=WIDE_KEYS if wide else sizes.d), score, weigh, allowed, added)
