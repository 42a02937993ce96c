"""Which calls the fuzz makes: names along each axis, drawn so that every possible pair of names occurs.

Nothing here touches a tensor: `data` turns a draw into numbers, `build` into terms of the library, `oracle` into the
answer.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace

from tests.fuzz import settings
from tests.fuzz.settings import CALLS, SEED

# the calls are cut into this many tests, so that several workers can share them
PARTS = 40

SIZES = (0, 1, 2, 3, 7, 16, 33, 64, 65, 127, 129, 200)
# a picture has height × width cells, and as many queries as keys
CELLS = ((1, 1), (1, 7), (4, 4), (5, 13), (3, 43))
AXES: dict[str, tuple[object, ...]] = {
    "score": (
        "dot", "dot cap", "bilinear", "cosine", "cosine learned", "additive", "additive heads", "additive silu",
        "concat", "concat tanh", "gaussian", "gaussian learned", "feature", "callable",
    ),
    "weigh": (
        "softmax", "softmax sink", "relu", "relu squared", "sigmoid", "entmax", "entmax 1.3", "entmax 3", "sparsemax",
        "hard", "hard sample", "sum",
    ),
    "mask": (
        "full", "lengths", "lengths by query", "causal", "causal offset", "causal by sequence", "window",
        "window by sequence", "document", "edges", "grid", "allowed", "allowed by key", "and", "or", "not",
    ),
    "bias": (
        "none", "dense", "dense by key", "alibi", "alibi learned", "relative", "relative past", "quadratic",
    ),
    "dtype": ("float64", "float32", "bfloat16", "float16"),
    "layout": ("contiguous", "transposed", "expanded", "packed", "offset", "padded", "stepped"),
    "family": ("normal", "uniform", "x30", "x1e3", "ladder", "ties", "sink", "massive", "denormal"),
    "ndim": (2, 3, 4, 5),
    "n": SIZES,
    "m": SIZES,
    "budget": (24, 500, 4000, 2**18),
    "dropout": (0.0, 0.3),
    "grad": ("contiguous", "expanded", "transposed"),
}  # fmt: skip


@dataclass(frozen=True)
class Draw:
    """One call by names; `n` and `m` give way to the picture where the mask or the bias is about one."""

    score: str
    weigh: str
    mask: str
    bias: str
    dtype: str
    layout: str
    family: str
    ndim: int
    n: int
    m: int
    budget: int
    dropout: float
    grad: str
    # what follows is drawn freely: it belongs to no pair
    cells: tuple[int, int]
    learn_bias: bool
    seed: int
    # where it says what a kernel is compiled for (see `kinds`): widths, heads and the numbers of terms come from it
    kind: int | None = None

    @property
    def is_picture(self) -> bool:
        return self.mask == "grid" or self.bias == "quadratic"

    @property
    def sizes(self) -> tuple[int, int]:
        cells = self.cells[0] * self.cells[1]
        return (cells, cells) if self.is_picture else (self.n, self.m)

    def pairs(self) -> set[tuple[tuple[str, object], tuple[str, object]]]:
        """The pairs of names that this call covers."""
        named = [(axis, getattr(self, axis)) for axis in AXES if not (self.is_picture and axis in ("n", "m"))]
        return set(itertools.combinations(named, 2))

    def __str__(self) -> str:
        names = [f"{field.name}={value!r}" for field, value in zip(fields(self), astuple(self), strict=True)]
        return f"Draw({', '.join(names)})"


def possible_pairs() -> set[tuple[tuple[str, object], tuple[str, object]]]:
    """All pairs that some call can cover: a picture has sizes of its own."""
    every = set()
    for (one, ones), (two, twos) in itertools.combinations(AXES.items(), 2):
        for pair in itertools.product(((one, x) for x in ones), ((two, y) for y in twos)):
            if not {("mask", "grid"), ("bias", "quadratic")} & set(pair) or not {"n", "m"} & {one, two}:
                every.add(pair)
    return every


def _draw(dice: random.Random, for_torch: bool) -> Draw:
    names = {axis: dice.choice(values) for axis, values in AXES.items()}
    draw = Draw(**names, cells=dice.choice(CELLS), learn_bias=dice.random() < 0.5, seed=dice.getrandbits(40))  # type: ignore[arg-type]
    if for_torch:
        score = dice.choice(("dot", "dot", "bilinear", "cosine", "feature"))
        draw = replace(draw, score=score, weigh="softmax", dropout=0.0, learn_bias=False, n=draw.n or 5, m=draw.m or 9)
    return draw


@functools.cache
def draw_all(seed: int = SEED, calls: int = CALLS) -> tuple[Draw, ...]:
    """All calls of a run: of a few candidates, each time the one that covers the most pairs not yet seen."""
    dice = random.Random(seed)
    missing = possible_pairs()
    drawn: list[Draw] = []
    for at in range(calls):
        # torch's kernels take few of all combinations: steer one call in four towards them
        candidates = [_draw(dice, for_torch=at % 4 == 0) for _ in range(24 if missing else 1)]
        best = max(candidates, key=lambda c: len(c.pairs() & missing)) if missing else candidates[0]
        missing -= best.pairs()
        drawn.append(best)
    return tuple(drawn)


def draw_one(number: int) -> Draw:
    """The call of this number, in this process and in any other that was asked for the same."""
    if settings.KINDS:
        from tests.fuzz.kinds import draw_call

        return draw_call(SEED, number, settings.KINDS, settings.SHARD[1])
    return draw_all(calls=max(CALLS, number + 1))[number]


def part(index: int) -> Iterator[tuple[int, Draw]]:
    """One of `PARTS` shares of this process's calls, each with its number."""
    at, of = settings.SHARD
    for number in range(at, CALLS, of)[index::PARTS]:
        yield number, draw_one(number)
