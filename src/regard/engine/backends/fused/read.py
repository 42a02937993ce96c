"""A call as the kernels are asked for it: a recipe, and tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.bias import Alibi, Dense, Relative
from regard.core import Score
from regard.core.terms import rowless
from regard.engine.backends.fused.masks import Marks, take_apart
from regard.engine.backends.fused.recipe import Recipe
from regard.engine.backends.fused.refuse import name_weigh
from regard.engine.call import Call, is_capturing
from regard.mask import Full
from regard.score import Additive, Bilinear, Concat, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sum


class Order(NamedTuple):
    """What the kernels are asked for: rows ready for the score, what terms learn, and the mask's tensors by name.

    Rows are (b, heads, positions, width).
    """

    recipe: Recipe
    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor | None
    sink: Tensor | None
    bias: Tensor | None
    marks: dict[str, Tensor]


def read(call: Call, query: Tensor, key: Tensor, value: Tensor, recipe: Recipe | None = None) -> Order:
    """A call that `refuse_terms` lets through, as an order; `recipe` is that of an earlier call of its kind."""
    weigh = call.weigh
    if _is_unbound(call):
        # weights and rows without a bound, and their gradients, may leave the range of float16 that products need; and
        # what a matrix makes of a row would lose digits in bfloat16 that its scores need
        query, key, value = query.float(), key.float(), value.float()
    query, key, value, weight, scale = _read_rows(call, query, key, value)
    marks, tensors = _read_mask(call)
    if recipe is None:
        recipe = _choose(call, scale, marks, tuple(tensors))
    bias = _hold(call.bias)
    return Order(recipe, query, key, value, weight, weigh.sink if isinstance(weigh, Softmax) else None, bias, tensors)


def keeps_rows(call: Call) -> bool:
    """Whether the kernels take query, key and value as they are given."""
    return isinstance(call.score, Dot | Additive | Gaussian) and not _is_unbound(call)


def keeps_mask(call: Call) -> bool:
    """Whether what was made of the call's mask is kept, and this call may keep more."""
    kept = call.kept.get("marks")
    return kept is not None and kept[0] is call.mask and _may_keep()


def _may_keep() -> bool:
    """Whether a later call may have what this one makes: not what lies within a graph that is captured or compiled."""
    return not (torch.compiler.is_compiling() or is_capturing())


def _is_unbound(call: Call) -> bool:
    is_float16 = call.sizes.dtype == torch.float16
    return isinstance(call.score, Bilinear | Feature) or (is_float16 and isinstance(call.weigh, Relu | Sum))


def _choose(call: Call, scale: float, marks: Marks, names: tuple[str, ...]) -> Recipe:
    score, weigh, bias = call.score, call.weigh, call.bias
    recipe = Recipe("dot", name_weigh(call), scale, dropout=call.dropout, marks=names)
    recipe = replace(recipe, before=marks.before, after=marks.after, grid=marks.grid)
    if isinstance(score, Additive | Concat):
        recipe = replace(recipe, score=score.activation)
    elif isinstance(score, Gaussian):
        recipe = replace(recipe, score="distance")
    elif isinstance(score, Dot):
        recipe = replace(recipe, cap=score.cap)
    if isinstance(weigh, Relu):
        recipe = replace(recipe, power=weigh.scale)
    elif isinstance(weigh, Sigmoid):
        recipe = replace(recipe, power=weigh.shift)
    elif isinstance(weigh, Entmax):
        recipe = replace(recipe, power=weigh.alpha)
    elif isinstance(weigh, Hard):
        recipe = replace(recipe, draws=weigh.how == "sample")
    if isinstance(bias, Alibi | Relative):
        assert bias.offset is not None, "settled"
        if isinstance(bias, Relative):
            return replace(recipe, bias="buckets")
        return replace(recipe, bias="slopes", place=bias.offset)
    return recipe if bias is None else replace(recipe, bias="dense")


def _hold(bias: object) -> Tensor | None:
    """What a bias holds."""
    if isinstance(bias, Dense):
        return bias.values
    return bias.slopes if isinstance(bias, Alibi) else bias.table if isinstance(bias, Relative) else None


def _read_mask(call: Call) -> tuple[Marks, dict[str, Tensor]]:
    """The mask taken apart, and its tensors, with those that a bias goes by; kept while the mask is the same."""
    may_keep = _may_keep()
    if may_keep and (kept := call.kept.get("marks")) is not None and kept[0] is call.mask:
        marks: tuple[Marks, dict[str, Tensor]] = kept[1]
        return marks
    apart = take_apart(call.mask)
    tensors = apart.list_tensors(call.sizes)
    bias, s = call.bias, call.sizes
    if isinstance(bias, Relative):
        assert bias.offset is not None, "settled"
        ahead = torch.arange(1 - s.n, s.m, device=s.device) - bias.offset
        tensors["buckets"] = bias.bucket(ahead).to(torch.int32)
    if may_keep:
        call.kept["marks"] = call.mask, (apart, tensors)
    return apart, tensors


def _read_rows(
    call: Call, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, float]:
    """Rows ready for the score, what it learns, and the scale of a dot product."""
    score, d = call.score, call.sizes.d
    if isinstance(score, Dot):
        return query, key, value, None, score.scale if score.scale is not None else d**-0.5
    if isinstance(score, Additive):
        return query, key, value, score.weight if score.weight.ndim == 2 else score.weight[None], 1.0
    if isinstance(score, Gaussian):
        width = (
            score.width
            if isinstance(score.width, Tensor)
            else torch.full((1,), score.width, dtype=torch.float32, device=query.device)
        )
        width = width.reshape(1, 1).expand(1, d) if width.numel() == 1 else torch.atleast_2d(width)
        return query, key, value, width, 1.0
    hides = type(call.mask) is not Full
    if hides:
        query, ill_queries = _set_apart(query)
        key, ill_keys = _set_apart(key)
    # transformed in float32, whatever the rows are
    wide: Score = score.with_tensors([t.float() for t in score.tensors])
    scale = 1.0
    weight = None
    if isinstance(wide, Concat):
        if wide.key_weight.ndim == 2 and key.shape[1] < query.shape[1]:
            # each query head has a projection of the keys of its own
            repeats = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
            if hides:
                ill_keys = ill_keys.repeat_interleave(repeats, 1)
        left, right, _ = wide.prepare(query.float(), key.float())
        weight = torch.ones(1, 1, dtype=torch.float32, device=query.device)
    else:
        rows = wide.as_dot(query.float(), key.float())
        if rows is None:
            raise rowless(score)
        left, right, scale = rows[0].to(query.dtype), rows[1].to(query.dtype), rows[2]
    if hides:
        left, right = left.masked_fill(ill_queries, torch.nan), right.masked_fill(ill_keys, torch.nan)
    return left, right, value, weight, scale


def _set_apart(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with those that hold NaN or infinity at zero, and which these are.

    What nobody sees must not reach gradients through a transformation; the kernels get NaN in its place, and show it to
    those that see it.
    """
    ill = ~x.detach().isfinite().all(-1, keepdim=True)
    return x.masked_fill(ill, 0.0), ill
