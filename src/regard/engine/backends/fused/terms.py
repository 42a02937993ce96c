"""The terms of an order as the kernels take them: named tuples of spots and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.engine.backends.fused.kernels.biases import Bias
from regard.engine.backends.fused.kernels.bits import Noise
from regard.engine.backends.fused.kernels.masks import Mask
from regard.engine.backends.fused.kernels.scores import Score
from regard.engine.backends.fused.kernels.tiles import Rows
from regard.engine.backends.fused.kernels.weighs import Stat, Weigh
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.recipe import Recipe
from regard.engine.backends.fused.start import Spot

if TYPE_CHECKING:
    from regard.engine.backends.fused.kind import Kind

Spots = Mapping[str, Spot]


# what an order holds that has a gradient
LEARNED = ("query", "key", "value", "weight", "sink", "bias")


def hold(order: Order) -> dict[str, Tensor]:
    """The tensors of an order, by the names that the kernels know them by."""
    held = {name: x for name, x in zip(LEARNED, order[1:7], strict=True) if x is not None}
    return complete(order.recipe, held, order.marks)


def complete(recipe: Recipe, held: dict[str, Tensor], marks: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of terms as kernels read them, with those of the mask."""
    for name in ("weight", "sink"):
        if name in held:
            held[name] = held[name].contiguous()
    if recipe.bias == "buckets":
        held["diagonals"] = held["bias"].float()[:, marks["buckets"]].contiguous()
    return held | marks


def make_terms(kind: Kind, spots: Spots) -> tuple[Score, Weigh, Mask, Bias]:
    """Score, weigher, mask and bias."""
    recipe = kind.recipe
    return (
        make_score(recipe, kind.unit, spots),
        make_weigh(recipe, spots),
        make_mask(recipe, spots),
        make_bias(recipe, spots),
    )


def make_score(recipe: Recipe, unit: float, spots: Spots) -> Score:
    if recipe.is_dot:
        scale = recipe.scale if recipe.cap is not None else recipe.scale * unit
        return Score(scale=scale, slope=recipe.scale, cap=recipe.cap)
    weight = spots["weight"]
    wide = 0 if weight.held.shape[0] == 1 else weight.held.shape[1]
    features = {name: spots.get(name) for name in ("queries", "keys", "form", "most_queries", "most_keys")}
    return Score(weight=weight, weight_h=wide, **features)


def make_weigh(recipe: Recipe, spots: Spots) -> Weigh:
    kind, number = recipe.weigh, recipe.power
    if kind.startswith("relu"):
        return Weigh(scale=number)
    if kind == "sigmoid":
        return Weigh(shift=number)
    if kind.startswith("entmax"):
        return Weigh(steep=number - 1, power=1 / (number - 1))
    sink = spots.get("sink")
    return Weigh() if sink is None else Weigh(sink=sink, sink_h=0 if sink.held.numel() == 1 else 1)


def make_mask(recipe: Recipe, spots: Spots) -> Mask:
    fields: dict[str, Any] = {"before": recipe.before, "after": recipe.after}
    if recipe.grid is not None:
        fields |= dict(zip(("width", "rows", "columns"), recipe.grid, strict=True))
    for name in recipe.marks:
        spot = spots[name]
        x = spot.held
        if name in ("lengths", "row_lengths"):
            fields |= {"lengths": spot, "lengths_b": x.stride(0)}
            fields["lengths_i"] = x.stride(1) if name == "row_lengths" else None
        elif name == "bits":
            b, h, _, _ = list_strides(x)
            fields |= {"bits": spot, "bits_b": b, "bits_h": h, "words": x.shape[-1]}
        elif name != "buckets":
            fields[name] = spot
    for name, of in (
        ("query_ids_b", "query_ids"),
        ("key_ids_b", "key_ids"),
        ("ends_b", "first"),
        ("heads_b", "top"),
    ):
        if of in recipe.marks:
            shape = spots[of].held.shape
            fields[name] = 0 if shape[0] == 1 else shape[1]
    return Mask(**fields)


def make_bias(recipe: Recipe, spots: Spots) -> Bias:
    if recipe.bias is None:
        return Bias()
    if recipe.bias == "slopes":
        return Bias(slopes=spots["bias"], place=recipe.place)
    if recipe.bias == "buckets":
        return Bias(diagonals=spots["diagonals"])
    return Bias(spots["bias"], *list_strides(spots["bias"].held))


def make_noise(recipe: Recipe, spots: Spots) -> Noise:
    dropout = recipe.dropout
    return Noise(spots["seed"], dropout, 1 / (1 - dropout)) if dropout else Noise()


def make_draws(recipe: Recipe, spots: Spots) -> Noise:
    return Noise(spots["draw_seed"]) if recipe.draws else Noise()


def as_word(seed: int) -> int:
    """The 32 bits of a seed that its random bits are made from, as an int of 32 bits: no seed needs another kernel."""
    return (seed + 2**31) % 2**32 - 2**31


def as_rows(spot: Spot) -> Rows:
    return Rows(spot, *spot.held.stride())


def as_stat(spot: Spot | None) -> Stat | None:
    return None if spot is None else Stat(spot, spot.held.numel() // 2)


def list_strides(x: Tensor) -> list[int]:
    """Strides, zero along axes of one."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True)]


def stride_rows(rows: Tensor, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of as many rows of some width, heads within positions where these rows have them so.

    Layers split their rows into heads: what goes back in the same order is joined again without a copy.
    """
    b, h, n, _ = rows.shape
    within = rows.stride(1) < rows.stride(2)
    return (b, h, n, width), ((n * h * width, width, h * width, 1) if within else (h * n * width, n * width, width, 1))


def lay_out(rows: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Room for such rows."""
    shape, strides = stride_rows(rows, width)
    return torch.empty_strided(shape, strides, dtype=dtype, device=rows.device)
