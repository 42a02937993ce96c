"""The masks once more, as rules on plain integers: what the tensors are held against."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.core import And, Mask, Not, Or, Sizes, Tile
from regard.mask import Allowed, Causal, Document, Edges, Full, Grid, Lengths, Window

Rule = Callable[[int, int, int, int], bool]


def rule_of(mask: Mask, sizes: Sizes) -> Rule:
    """Whether query i of head h of sequence b may attend to key j, for a mask as the caller wrote it."""
    match mask:
        case And(one, other):
            left, right = rule_of(one, sizes), rule_of(other, sizes)
            return lambda *at: left(*at) and right(*at)
        case Or(one, other):
            left, right = rule_of(one, sizes), rule_of(other, sizes)
            return lambda *at: left(*at) or right(*at)
        case Not(one):
            inner = rule_of(one, sizes)
            return lambda *at: not inner(*at)
        case Full():
            return lambda b, h, i, j: True
        case Causal(offset):
            place = _place(offset, sizes)
            return lambda b, h, i, j: j <= i + place(b)
        case Window(before, after, offset):
            place = _place(offset, sizes)
            return lambda b, h, i, j: i + place(b) - before <= j <= i + place(b) + after
        case Lengths(lengths):
            rows = lengths.reshape(sizes.b, -1).tolist()
            return lambda b, h, i, j: j < rows[b][i % len(rows[b])]
        case Edges(queries, keys):
            linked = set(zip(queries.tolist(), keys.tolist(), strict=True))
            return lambda b, h, i, j: (i, j) in linked
        case Document(segments, query_segments):
            queries = segments if query_segments is None else query_segments
            of_key, of_query = (ids.reshape(-1, ids.shape[-1]).tolist() for ids in (segments, queries))
            return lambda b, h, i, j: of_query[b % len(of_query)][i] == of_key[b % len(of_key)][j]
        case Grid(_, width, radius):
            rows, columns = (radius, radius) if isinstance(radius, int) else radius
            return lambda b, h, i, j: abs(i // width - j // width) <= rows and abs(i % width - j % width) <= columns
        case Allowed(allowed):
            lead, heads = sizes.lead, (sizes.h,) if sizes.has_heads else ()
            table = allowed.expand(*lead, *heads, sizes.n, sizes.m).reshape(sizes.b, sizes.h, sizes.n, sizes.m).tolist()
            return lambda b, h, i, j: table[b][h][i][j]
    raise NotImplementedError(f"write the rule of {type(mask).__name__} here")


def _place(offset: int | Tensor | None, sizes: Sizes) -> Callable[[int], int]:
    if offset is None:
        return lambda b: sizes.m - sizes.n
    if isinstance(offset, int):
        return lambda b: offset
    each = offset.flatten().tolist()
    return lambda b: each[b]


def write_out(rule: Rule, tile: Tile) -> Tensor:
    """The rule asked pair by pair."""
    return torch.tensor(
        [[[[rule(b, h, i, j) for j in tile.j] for i in tile.i] for h in tile.h] for b in tile.b], dtype=torch.bool
    ).reshape(tile.shape)
