"""Calls of few kinds: what a kernel is compiled for stays the same within one, sizes and numbers change.

Triton compiles a kernel for some seconds whenever terms, dtype, widths or strides are new to it, and once more where an
integer is one or a multiple of 16, or where a block is shorter because the call is. So the sizes of a kind keep their
remainder by 16, and the power of two above them up to 128.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import cache

from tests.fuzz.draw import AXES, CELLS, Draw

# what is fixed by a kind and covered pair by pair; `fused` has no kernel for the rest
FIXED = ("score", "weigh", "mask", "bias", "dtype", "layout", "ndim", "dropout", "grad")
WITHOUT_KERNEL = ("callable", "quadratic", "float64")
REMAINDERS = (0, 0, 1, 1, 5, 8, 15)
# how many sixteens a size has beyond its remainder: up to 16, 32, 64 and 128, and more
SIXTEENS = ((0,), (1,), (2, 3), (4, 5, 6, 7), tuple(range(8, 32)))


def list_names(axis: str) -> list[object]:
    return [name for name in AXES[axis] if name not in WITHOUT_KERNEL]


@cache
def draw_kinds(seed: int, count: int) -> tuple[Draw, ...]:
    """Kinds such that pairs of names meet early: of a few candidates, the one with the most pairs not yet seen."""
    dice = random.Random(f"kinds {seed}")
    missing = {
        pair
        for one, two in itertools.combinations(FIXED, 2)
        for pair in itertools.product(*([(axis, name) for name in list_names(axis)] for axis in (one, two)))
    }
    kinds = []
    for _ in range(count):
        best = max((_draw_kind(dice) for _ in range(32)), key=lambda kind: len(_pairs(kind) & missing))
        missing -= _pairs(best)
        kinds.append(best)
    return tuple(kinds)


def _pairs(kind: Draw) -> set[tuple[tuple[str, object], tuple[str, object]]]:
    return set(itertools.combinations([(axis, getattr(kind, axis)) for axis in FIXED], 2))


def _draw_kind(dice: random.Random) -> Draw:
    names = {axis: dice.choice(list_names(axis)) for axis in AXES}
    names["n"], names["m"] = dice.choice(REMAINDERS), dice.choice(REMAINDERS)
    cells, learns, kind = dice.choice((*CELLS, (8, 16), (9, 31))), dice.random() < 0.5, dice.getrandbits(40)
    return Draw(**names, cells=cells, learn_bias=learns, seed=0, kind=kind)  # type: ignore[arg-type]


def draw_call(seed: int, number: int, kinds: int, shards: int) -> Draw:
    """Call `number`, which belongs to process `number % shards`: of one of its kinds, in turn."""
    pool = draw_kinds(seed, kinds * shards)
    kind = pool[number % shards + shards * (number // shards % kinds)]
    dice = random.Random(f"call {seed} {number}")
    blocks = random.Random(kind.kind).choices(SIXTEENS, (1, 1, 1, 2, 5), k=2)
    n, m = (x + 16 * dice.choice(block) or 16 for x, block in zip((kind.n, kind.m), blocks, strict=True))
    family = dice.choice(AXES["family"])
    return replace(kind, n=n, m=m, family=family, budget=dice.choice(AXES["budget"]), seed=dice.getrandbits(40))  # type: ignore[arg-type]
