"""The forward pass of a kind of call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.engine.backends.fused.features import list_features, make_rooms
from regard.engine.backends.fused.kernels.forward import attend_forward
from regard.engine.backends.fused.kernels.solve import solve_rows
from regard.engine.backends.fused.kernels.tiles import FLAGGED, ILL
from regard.engine.backends.fused.kind import Kind
from regard.engine.backends.fused.passes import Pass, Room, make_room
from regard.engine.backends.fused.shapes import LEAST, Shape, choose_span, divide_up
from regard.engine.backends.fused.start import Starter
from regard.engine.backends.fused.terms import (
    Spots,
    as_rows,
    as_stat,
    make_draws,
    make_noise,
    make_terms,
)  # fmt: skip


def make_forward(kind: Kind, held: dict[str, Tensor], keeps: bool) -> Pass:
    """From query, key, value and what terms hold to the output, float32 where a backward pass needs it so; with the
    rows' statistic where that needs it."""
    recipe, value = kind.recipe, held["value"]
    dtype = torch.float32 if keeps and recipe.keeps_exact(value.dtype) else value.dtype
    rooms = {"out": make_room(held, "query", value.shape[-1], dtype)}
    if recipe.solves or (keeps and recipe.keeps_rows):
        rooms["stat"] = Room((2, kind.b, kind.h, kind.n))
    features, parts = make_rooms(kind, held["query"], held["key"])
    rooms |= features | make_flags(kind, flags=kind.count * kind.n)

    def list_starters(spots: Spots, tensors: Sequence[Any]) -> Iterator[Starter]:
        yield from list_features(kind, spots)
        if recipe.solves:
            rows = as_rows(spots["query"]), as_rows(spots["key"])
            given = *rows, as_stat(spots["stat"]), *make_terms(kind, spots), make_draws(recipe, spots), kind.size
            names = "d", "SCORE", "WEIGH", "D", "PRECISION", "FAST"
            needed = {name: kind.constants[name] for name in names}

            def solve(shape: Shape) -> Starter:
                count = kind.count * divide_up(kind.n, shape.rows)
                return Starter(solve_rows, count, {**needed, **shape.constants}, given)

            yield kind.ask("solve", solve, tensors)
        for heal in kind.goes:
            yield _attend(kind, spots, tensors, heal)

    return Pass(kind.device, [*held], rooms, parts, list_starters)


def make_flags(kind: Kind, **counts: int) -> dict[str, Room]:
    """Room for a word from each block of rows whether it came out ill, where blocks are done again."""
    again = FLAGGED.value in kind.goes
    return {name: Room((count // LEAST + kind.count,), torch.int32) for name, count in counts.items() if again}


def share_out(count: int, heal: int) -> tuple[int, dict[str, int]]:
    """How many programs do so many blocks, and with which care; one that heals few looks at several."""
    span = choose_span(count) if heal in (FLAGGED.value, ILL.value) else 1
    return count // span, {"HEAL": heal, "SPAN": span}


def make_forward_heal(kind: Kind, given: Sequence[Tensor]) -> Pass:
    """Blocks done again where the output that cuDNN made is ill; it has no terms with tensors."""
    names = ("query", "key", "value", "out", "stat")[: len(given)]

    def list_starters(spots: Spots, tensors: Sequence[Any]) -> Iterator[Starter]:
        yield _attend(kind, spots, tensors, ILL.value)

    return Pass(kind.device, names, {}, {}, list_starters)


def _attend(kind: Kind, spots: Spots, tensors: Sequence[Any], heal: int) -> Starter:
    recipe = kind.recipe
    rows = (as_rows(spots[name]) for name in ("query", "key", "value", "out"))
    is_borrowed = heal == ILL.value
    noted = as_stat(spots.get("stat")), spots.get("flags")
    given = *rows, *noted, *make_terms(kind, spots), make_noise(recipe, spots), kind.size
    folds = recipe.is_dot and kind.unit != 1 and recipe.cap is None and recipe.bias is None and recipe.scale > 0

    def make(shape: Shape) -> Starter:
        count, cares = share_out(kind.count * divide_up(kind.n, shape.rows), heal)
        return Starter(attend_forward, count, {**kind.constants, "FOLD": folds, **cares, **shape.constants}, given)

    return kind.ask("forward", make, tensors, is_borrowed)
