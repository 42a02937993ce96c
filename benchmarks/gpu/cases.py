"""What is measured on the GPU: in each case the same tensors for our kernel, for its peers and for the definition."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.gpu import peers, plain
from benchmarks.gpu.goal import Goal
from benchmarks.gpu.peers import CUDNN, EFFICIENT, FLASH
from regard.mask import Window
from regard.score import Additive, Gaussian
from regard.weigh import Entmax, Relu, Sigmoid, Sparsemax

FLEX = "FlexAttention"
NOTHING = Goal()
# how many rows the eager peer of a large regression takes at a time
STEP = 8192


class Shape(NamedTuple):
    """Sizes of a case: leading axes (batch, heads), queries, keys, width; key heads and window where it has them."""

    lead: tuple[int, ...]
    n: int
    m: int
    d: int = 64
    key_heads: int | None = None
    reach: int = 0

    def __str__(self) -> str:
        heads = f" heads on {self.key_heads} key heads" if self.key_heads else " heads"
        parts = [f"{size}{heads if axis == 1 else ''}" for axis, size in enumerate(self.lead)]
        parts += [f"{self.n:,} {'query' if self.n == 1 else 'queries'}", f"{self.m:,} keys"]
        text = " × ".join(parts) + f", width {self.d}"
        return f"{text}, {self.reach} keys to either side" if self.reach else text


@dataclass(frozen=True)
class Place:
    """Where and how a case is to run; peers go through torch's compiler only if `compiles`."""

    device: str
    dtype: torch.dtype
    compiles: bool = True

    def draw(self, *shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
        """Normal numbers, the same each time."""
        noise = torch.Generator(self.device).manual_seed(seed)
        return [torch.randn(shape, generator=noise, device=self.device).to(self.dtype) for shape in shapes]

    def draw_rows(self, shape: Shape) -> list[Tensor]:
        """Query, key and value."""
        keys = (*shape.lead[:-1], shape.key_heads) if shape.key_heads else shape.lead
        return self.draw((*shape.lead, shape.n, shape.d), *[(*keys, shape.m, shape.d)] * 2)


@dataclass(frozen=True)
class Work:
    """A case on its tensors, by name and the query first: the terms for `attend`, the definition, and the peers."""

    inputs: dict[str, Tensor]
    terms: dict[str, Any]
    plain: plain.Plain
    peers: dict[str, Callable[[], Tensor]]
    # numbers that the definition holds for each query
    per_row: int
    # peers that round what they should not: shown with their error, and not held to be right
    rough: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A row of the table; `tiny` is the same on small tensors, for a look at whether all is right."""

    name: str
    what: str
    shape: Shape
    tiny: Shape
    make: Callable[[Place, Shape], Work]
    trains: bool = False
    dtype: torch.dtype = torch.bfloat16
    goal: Goal = NOTHING
    # how many runs are compared bit by bit
    runs: int = 0

    @property
    def title(self) -> str:
        return self.describe(self.shape)

    def describe(self, shape: Shape) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.what}, {shape}, {dtype}, forward{' and backward' if self.trains else ''}"


def name_rows(*tensors: Tensor, last: str = "") -> dict[str, Tensor]:
    return dict(zip(("query", "key", "value", last), tensors, strict=False))


def count_per_row(shape: Shape) -> int:
    return math.prod(shape.lead) * shape.m


def _eager_and_compiled(place: Place, what: plain.Plain, *inputs: Tensor) -> dict[str, Callable[[], Tensor]]:
    return {
        "eager": peers.eager(what, *inputs),
        "torch.compile": peers.compiled(what, *inputs, compiles=place.compiles),
    }


def make_additive(place: Place, shape: Shape) -> Work:
    query, key, value = place.draw_rows(shape)
    # scores with a spread of about one
    weight = place.draw((shape.d,), seed=1)[0] * (2 / shape.d**0.5)
    inputs = name_rows(query, key, value, weight, last="weight")
    others = _eager_and_compiled(place, plain.additive, *inputs.values())
    return Work(inputs, {"score": Additive(weight)}, plain.additive, others, count_per_row(shape) * shape.d)


def _regression(place: Place, shape: Shape, alone: bool = False) -> Work:
    query, key, noise = place.draw((shape.n, 1), (shape.m, 1), (shape.m, 1))
    # a curve and its samples: of noise alone, the average would be lost in rounding
    inputs = name_rows(query, key, torch.sin(2 * key) + 0.5 * noise)
    what = partial(plain.gaussian, width=1.0)
    others = {} if alone else _eager_and_compiled(place, what, *inputs.values())
    if not alone:
        others[f"eager, {STEP} rows at a time"] = partial(plain.by_rows, what, STEP, *inputs.values())
    return Work(inputs, {"score": Gaussian(1.0)}, what, others, count_per_row(shape))


def make_relu(place: Place, shape: Shape) -> Work:
    rows, scale = place.draw_rows(shape), 1 / shape.m
    what = partial(plain.relu, scale=scale)
    return Work(
        name_rows(*rows),
        {"weigh": Relu(scale=scale)},
        what,
        _eager_and_compiled(place, what, *rows),
        count_per_row(shape),
    )


def _sigmoid(place: Place, shape: Shape) -> Work:
    rows, shift = place.draw_rows(shape), -math.log(shape.m)
    what = partial(plain.sigmoid, shift=shift)
    others = _eager_and_compiled(place, what, *rows)
    return Work(name_rows(*rows), {"weigh": Sigmoid(shift=shift)}, what, others, count_per_row(shape))


def _softmax(place: Place, shape: Shape) -> Work:
    rows = place.draw_rows(shape)
    others = {
        FLEX: peers.flex(*rows, compiles=place.compiles),
        "sdpa flash": peers.sdpa(FLASH, *rows),
        "sdpa cuDNN": peers.sdpa(CUDNN, *rows),
    }
    return Work(name_rows(*rows), {}, plain.softmax, others, count_per_row(shape))


def _window(place: Place, shape: Shape) -> Work:
    rows, reach = place.draw_rows(shape), shape.reach
    others = {FLEX: peers.flex(*rows, mask=peers.near(reach, reach), compiles=place.compiles)}
    what = partial(plain.window, before=reach, after=reach)
    # rows that are taken together hold each other's windows too
    return Work(name_rows(*rows), {"mask": Window(reach, reach)}, what, others, math.prod(shape.lead) * 8 * reach)


def _bias(place: Place, shape: Shape) -> Work:
    rows = place.draw_rows(shape)
    (bias,) = place.draw((1, shape.lead[-1], shape.n, shape.m), seed=1)
    inputs = name_rows(*rows, bias, last="bias")
    others = {
        FLEX: peers.flex(*rows, change=peers.add(bias), compiles=place.compiles),
        "sdpa efficient": peers.sdpa(EFFICIENT, *rows, bias=bias),
        "eager": peers.eager(plain.biased, *inputs.values()),
    }
    return Work(inputs, {"bias": bias}, plain.biased, others, count_per_row(shape))


def make_entmax(place: Place, shape: Shape, name: str, alpha: float) -> Work:
    rows = place.draw_rows(shape)
    wide, narrow = f"entmax.{name}, float32 scores", f"entmax.{name}, bfloat16 scores"
    others = {
        wide: peers.entmax(name, *rows, is_wide=True),
        narrow: peers.entmax(name, *rows, is_wide=False),
    }
    weigh = Sparsemax() if alpha == 2 else Entmax(alpha)
    what = partial(plain.entmax, alpha=alpha)
    # bisection holds a few copies
    return Work(name_rows(*rows), {"weigh": weigh}, what, others, 4 * count_per_row(shape), rough=(narrow,))


def _float32(place: Place, shape: Shape) -> Work:
    rows = place.draw_rows(shape)
    return Work(
        name_rows(*rows), {}, plain.softmax, {"sdpa efficient": peers.sdpa(EFFICIENT, *rows)}, count_per_row(shape)
    )


def _decode(place: Place, shape: Shape) -> Work:
    rows = place.draw_rows(shape)
    others = {"sdpa cuDNN": peers.sdpa(CUDNN, *rows), "sdpa flash": peers.sdpa(FLASH, *rows)}
    return Work(name_rows(*rows), {}, plain.softmax, others, count_per_row(shape))


# 3-D inputs: no head axis
_ADDITIVE = Shape((4,), 8192, 8192), Shape((2,), 19, 23, 8)
_DOT = Shape((1, 32), 16384, 16384), Shape((2, 3), 37, 37, 8)
_WINDOW = Shape((1, 32), 65536, 65536, reach=512), Shape((2, 3), 37, 37, 8, reach=5)
_WEIGH = Shape((1, 16), 8192, 8192), Shape((2, 3), 19, 23, 8)
_SPARSE = Shape((1, 16), 4096, 4096), Shape((2, 3), 19, 23, 8)
# entmax keeps O(n): bfloat16 scores alone would take 512 MiB
_SPARSE_MIB = 128.0


def _twice(name: str, what: str, shapes: tuple[Shape, Shape], make: Callable[[Place, Shape], Work],
           goal: Goal = NOTHING, train_goal: Goal | None = None) -> list[Case]:  # fmt: skip
    """A case forward, and the same in training."""
    train_goal = goal if train_goal is None else train_goal
    return [
        Case(name, what, *shapes, make, goal=goal),
        Case(f"{name}-train", what, *shapes, make, trains=True, goal=train_goal),
    ]


CASES = [
    *_twice("additive", "additive score", _ADDITIVE, make_additive, Goal(ms=4.0, mib=32), Goal(ms=28, mib=64)),
    Case(
        "kernel-regression", "Gaussian kernel in one dimension", Shape((), 100_000, 100_000, 1), Shape((), 19, 23, 1),
        _regression, dtype=torch.float32, goal=Goal(ms=5.0),
    ),
    Case(
        "kernel-regression-million", "Gaussian kernel in one dimension", Shape((), 1_000_000, 1_000_000, 1),
        Shape((), 29, 31, 1), partial(_regression, alone=True), dtype=torch.float32, goal=Goal(ms=500),
    ),
    Case("relu", "ReLU weights, scale 1/m", *_WEIGH, make_relu, trains=True, goal=Goal(ms=3.2, mib=64)),
    Case("sigmoid", "sigmoid weights, shift -log m", *_WEIGH, _sigmoid, trains=True, goal=Goal(ms=3.2, mib=64)),
    *_twice("softmax", "softmax of dot products", _DOT, _softmax, Goal(times=1, over=FLEX)),
    *_twice("window", "softmax of dot products in a window", _WINDOW, _window, Goal(times=1, over=FLEX)),
    Case(
        "bias-train", "learned dense bias of each head", Shape((4, 16), 2048, 2048), Shape((2, 3), 19, 23, 8), _bias,
        trains=True, goal=Goal(times=1, bits=True), runs=10,
    ),
    Case(
        "entmax-train", "entmax with alpha 1.5", *_SPARSE, partial(make_entmax, name="entmax15", alpha=1.5),
        trains=True, goal=Goal(times=5, over="entmax", mib=_SPARSE_MIB),
    ),
    Case("sparsemax-train", "sparsemax", *_SPARSE, partial(make_entmax, name="sparsemax", alpha=2.0), trains=True),
    Case(
        "float32", "softmax of dot products, TF32 off", Shape((1, 16), 4096, 4096), Shape((2, 3), 19, 23, 8), _float32,
        trains=True, dtype=torch.float32,
    ),
    Case(
        "decode", "softmax of dot products, decoding", Shape((64, 32), 1, 8192, 128, key_heads=8),
        Shape((2, 4), 1, 23, 8, key_heads=2), _decode,
    ),
]  # fmt: skip
