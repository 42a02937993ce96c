"""A call as a recipe and tensors, or why there is no kernel for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.bias import Alibi, Dense, Relative
from regard.core import Score
from regard.core.terms import rowless
from regard.engine.backends.fused.masks import count_bytes, take_apart
from regard.engine.backends.fused.recipe import Recipe
from regard.engine.call import Call
from regard.mask import Full
from regard.score import Additive, Bilinear, Concat, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum

WIDEST = 512
# beyond it, a block of keys with its gradients of features does not fit into the shared memory of a Hopper
WIDEST_FEATURES = 256
# what has a kernel; a class that inherits may mean another thing
SCORES = (Dot, Additive, Concat, Gaussian)
WEIGHS = (Softmax, Sum, Sigmoid, Relu, Entmax, Sparsemax, Hard)
BIASES = (Dense, Alibi, Relative)
# indices, and products of a width and a number of positions, are 32 bits wide
MOST = 2**29


def refuse_terms(call: Call) -> str | None:
    """What has no kernel: the first part of a call that is found."""
    s = call.sizes
    if s.dtype == torch.float64:
        return "its kernels compute in float32, not float64."
    if 0 in (s.b, s.h, s.n, s.m, s.d, s.c, s.e):
        return "its kernels take no empty axis."
    if max(s.d, s.c, s.e) > WIDEST:
        return f"its kernels take widths up to {WIDEST}, got {max(s.d, s.c, s.e)}."
    if call.needs_grad and not call.score.is_dot and max(s.d, s.c, s.e) > WIDEST_FEATURES:
        return f"its gradients of features take widths up to {WIDEST_FEATURES}, got {max(s.d, s.c, s.e)}."
    if max(s.n, s.m) * (1 if call.score.is_dot else s.d) >= MOST:
        return f"its kernels count positions times features up to 2**29, got {max(s.n, s.m)} × {s.d}."
    if not (call.score.is_dot or type(call.score) in SCORES):
        return f"{type(call.score).__name__} has no kernel."
    if type(call.weigh) not in WEIGHS:
        return f"{type(call.weigh).__name__} has no kernel."
    if isinstance(call.weigh, Entmax) and call.weigh.alpha > 2:
        return f"beyond an alpha of 2, float32 cannot tell weights near the threshold apart, got {call.weigh.alpha}."
    if call.bias is not None and type(call.bias) not in BIASES:
        return f"{type(call.bias).__name__} has no kernel."
    return None


def _name_weigh(call: Call) -> str | None:
    weigh = call.weigh
    if isinstance(weigh, Softmax):
        return "softmax"
    if isinstance(weigh, Sum):
        return "sum"
    if isinstance(weigh, Sigmoid):
        return "sigmoid"
    if isinstance(weigh, Relu):
        return f"relu{weigh.power}"
    if isinstance(weigh, Entmax):
        return {1.5: "entmax1.5", 2.0: "entmax2"}.get(weigh.alpha, "entmax")
    return "hard" if isinstance(weigh, Hard) else None


def count_mask(call: Call) -> int:
    """Bytes of bits that the mask will be packed into."""
    return count_bytes(take_apart(call.mask).bits, call.sizes)


@dataclass(frozen=True, eq=False)
class Order:
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


def read(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Order:
    """A call that `refuse_terms` lets through, as an order."""
    weigh = call.weigh
    name = _name_weigh(call)
    assert name is not None, "refuse lets only what has a kernel through"
    recipe = Recipe("dot", name, dropout=call.dropout)
    if isinstance(weigh, Relu):
        recipe = replace(recipe, power=weigh.scale)
    elif isinstance(weigh, Sigmoid):
        recipe = replace(recipe, power=weigh.shift)
    elif isinstance(weigh, Entmax):
        recipe = replace(recipe, power=weigh.alpha)
    elif isinstance(weigh, Hard):
        recipe = replace(recipe, draws=weigh.how == "sample")
    is_float16 = call.sizes.dtype == torch.float16
    if isinstance(call.score, Bilinear | Feature) or (is_float16 and isinstance(weigh, Relu | Sum)):
        # weights and rows without a bound, and their gradients, may leave the range of float16 that products need; and
        # what a matrix makes of a row would lose digits in bfloat16 that its scores need
        query, key, value = query.float(), key.float(), value.float()
    recipe, query, key, value, weight = _read_score(call, recipe, query, key, value)
    marks = take_apart(call.mask)
    tensors = marks.list_tensors(call.sizes)
    recipe, bias = _read_bias(call, recipe, tensors)
    recipe = replace(recipe, before=marks.before, after=marks.after, grid=marks.grid, marks=tuple(tensors))
    sink = weigh.sink if isinstance(weigh, Softmax) else None
    return Order(recipe, query, key, value, weight, sink, bias, tensors)


def _read_bias(call: Call, recipe: Recipe, tensors: dict[str, Tensor]) -> tuple[Recipe, Tensor | None]:
    bias, s = call.bias, call.sizes
    if isinstance(bias, Dense):
        return replace(recipe, bias="dense"), bias.values
    if isinstance(bias, Alibi):
        assert bias.offset is not None, "settled"
        return replace(recipe, bias="slopes", place=bias.offset), bias.slopes
    if isinstance(bias, Relative):
        assert bias.offset is not None, "settled"
        ahead = torch.arange(1 - s.n, s.m, device=s.device) - bias.offset
        tensors["buckets"] = bias.bucket(ahead).to(torch.int32)
        return replace(recipe, bias="buckets"), bias.table
    return recipe, None


def _read_score(
    call: Call, recipe: Recipe, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Recipe, Tensor, Tensor, Tensor, Tensor | None]:
    """The recipe with its score, rows ready for it, and what it learns."""
    score, d = call.score, call.sizes.d
    if isinstance(score, Dot):
        scale = score.scale if score.scale is not None else d**-0.5
        return replace(recipe, scale=scale, cap=score.cap), query, key, value, None
    if isinstance(score, Additive):
        return replace(recipe, score=score.activation), query, key, value, torch.atleast_2d(score.weight)
    if isinstance(score, Gaussian):
        width = score.width if isinstance(score.width, Tensor) else torch.full((1,), score.width, device=query.device)
        width = width.reshape(1, 1).expand(1, d) if width.numel() == 1 else torch.atleast_2d(width)
        return replace(recipe, score="distance"), query, key, value, width
    hides = type(call.mask) is not Full
    if hides:
        query, ill_queries = _set_apart(query)
        key, ill_keys = _set_apart(key)
    # transformed in float32, whatever the rows are
    wide: Score = score.with_tensors([t.float() for t in score.tensors])
    if isinstance(wide, Concat):
        if wide.key_weight.ndim == 2 and key.shape[1] < query.shape[1]:
            # each query head has a projection of the keys of its own
            repeats = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
            if hides:
                ill_keys = ill_keys.repeat_interleave(repeats, 1)
        left, right, _ = wide.prepare(query.float(), key.float())
        recipe = replace(recipe, score=wide.activation)
        weight = torch.ones(1, 1, device=query.device)
    else:
        rows = wide.as_dot(query.float(), key.float())
        if rows is None:
            raise rowless(score)
        left, right = rows[0].to(query.dtype), rows[1].to(query.dtype)
        recipe, weight = replace(recipe, scale=rows[2]), None
    if hides:
        left, right = left.masked_fill(ill_queries, torch.nan), right.masked_fill(ill_keys, torch.nan)
    return recipe, left, right, value, weight


def _set_apart(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with those that hold NaN or infinity at zero, and which these are.

    What nobody sees must not reach gradients through a transformation; the kernels get NaN in its place, and show it to
    those that see it.
    """
    ill = ~x.detach().isfinite().all(-1, keepdim=True)
    return x.masked_fill(ill, 0.0), ill
