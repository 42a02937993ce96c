"""Rows feature by feature, as scores that are no dot products read them, and their gradients as they write them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.engine.backends.fused.kernels.prepare import lay_back_features, lay_out_features, measure_rows
from regard.engine.backends.fused.kernels.scores import BLOCK
from regard.engine.backends.fused.kind import Kind
from regard.engine.backends.fused.passes import Part, Room, share
from regard.engine.backends.fused.shapes import divide_up, round_up
from regard.engine.backends.fused.start import Starter
from regard.engine.backends.fused.terms import Spots, as_rows

# room behind, since blocks read past the last position without looking; none has more positions
_BEHIND = 1024


def shape_features(rows: Tensor) -> tuple[int, int, int, int]:
    """Sequences, heads, features, of which there are fours, and positions."""
    b, h, n, d = rows.shape
    return b, h, divide_up(d, 4) * 4, n


def make_rooms(kind: Kind, query: Tensor, key: Tensor) -> tuple[dict[str, Room], dict[str, Part]]:
    """Room for features of queries and keys; for tanh also for its form, and the largest numbers block by block."""
    if kind.recipe.is_dot:
        return {}, {}
    rows = ("queries", query), ("keys", key)
    shapes: dict[str, tuple[int, ...]] = {name: (math.prod(shape_features(x)) + _BEHIND,) for name, x in rows}
    if kind.recipe.score != "tanh":
        return share("features", shapes, is_zero=False)
    of_queries, of_keys, start = _count_blocks(query, key)
    # one room: to make each apart takes longer than a kernel
    rooms, parts = share("features", shapes | {"most": (start + of_keys,), "form": (1,)}, is_zero=False)
    parts["form"] = parts["form"]._replace(dtype=torch.int32)
    if kind.is_half:
        # float32 would feel the roundings of a shared division
        at = parts["most"].start
        parts |= {"most_queries": Part("features", at, (of_queries,))}
        parts |= {"most_keys": Part("features", at + start, (of_keys,))}
    return rooms, parts


def list_features(kind: Kind, spots: Spots) -> Iterator[Starter]:
    """What lays them out."""
    if kind.recipe.is_dot:
        return
    query, key = spots["query"], spots["key"]
    of_queries, of_keys, start = _count_blocks(query.held, key.held)
    count, d = of_queries + of_keys, query.held.shape[-1]
    constants = {"d": d, "D": max(round_up(d), divide_up(d, 4) * 4)}
    most, form = spots.get("most"), spots.get("form")
    rows = as_rows(query), as_rows(key)
    if most is not None:
        yield Starter(measure_rows, count, constants, (*rows, most, kind.size, of_queries, start))
    more = {"COUNT": BLOCK.value, "IS_HALF": kind.is_half, "BEHIND": _BEHIND}
    given = *rows, spots["queries"], spots["keys"], most, form, kind.size, of_queries, start + of_keys
    yield Starter(lay_out_features, count, constants | more, given)


def list_turns(kind: Kind, spots: Spots) -> Iterator[Starter]:
    """What makes gradients of rows from sums feature by feature."""
    if kind.recipe.is_dot:
        return
    dquery, dkey = spots["dquery"], spots["dkey"]
    of_queries, of_keys, _ = _count_blocks(dquery.held, dkey.held)
    d = dquery.held.shape[-1]
    constants = {"d": d, "D": max(round_up(d), divide_up(d, 4) * 4), "COUNT": BLOCK.value}
    sums = spots["query_sums"], spots["key_sums"]
    given = *sums, as_rows(dquery), as_rows(dkey), kind.size, of_queries
    yield Starter(lay_back_features, of_queries + of_keys, constants, given)


def _count_blocks(query: Tensor, key: Tensor) -> tuple[int, int, int]:
    """Blocks of queries, blocks of keys, and where those of keys begin: at an aligned place."""
    of_queries, of_keys = (x.shape[0] * x.shape[1] * divide_up(x.shape[2], BLOCK.value) for x in (query, key))
    return of_queries, of_keys, divide_up(of_queries, 4) * 4
