"""A case as the library's own call: strided tensors and terms."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from regard.bias import Alibi, Quadratic, Relative
from regard.mask import Causal, Document, Edges, Full, Grid, Lengths, Window
from regard.score import Additive, Bilinear, Concat, Cosine, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum
from tests.fuzz import pairs
from tests.fuzz.data import Case
from tests.fuzz.oracle import user_score
from tests.fuzz.settings import DEVICE
from tests.terms import move


def build(case: Case) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of the call by name, with gradients, and what else `attend` takes."""
    tensors = _lay_out(case)
    for at, x in case.leaves.items():
        if at not in tensors:
            tensors[at] = _take(x, case).requires_grad_(at in case.learned)
    options: dict[str, Any] = {
        "score": _score(case, tensors),
        "weigh": _weigh(case, tensors),
        "mask": move(_mask(case.mask, case), DEVICE),
        "bias": _bias(case, tensors),
        "dropout": case.draw.dropout,
    }
    if case.draw.dropout:
        options["generator"] = torch.Generator().manual_seed(case.draw.seed)
    return tensors, options


def _take(x: Tensor, case: Case) -> Tensor:
    """A tensor of the oracle's as the library gets it: in the call's dtype, on its device, with memory of its own."""
    return x.to(DEVICE, case.dtype, copy=True)


def lay_out_grad(case: Case) -> Tensor:
    """The gradient of the output with the strides that the draw asks for."""
    grad = _take(case.grad, case)
    if case.draw.grad == "expanded":
        return grad[..., :1].expand(grad.shape)
    return grad.mT.contiguous().mT if case.draw.grad == "transposed" else grad.contiguous()


def _lay_out(case: Case) -> dict[str, Tensor]:
    """Query, key and value as views with the strides that the draw asks for; memory beside them is NaN."""
    rows = {at: _take(case.leaves[at], case) for at in ("query", "key", "value")}
    if case.draw.layout == "packed":
        together = ["query", "key", "value"] if case.n == case.m else ["key", "value"]
        packed = _pack([rows[at] for at in together])
        return {at: x.requires_grad_() for at, x in rows.items() if at not in together} | dict(
            zip(together, packed, strict=True)
        )
    return {at: _stride(case.draw.layout, x, case.repeats.get(at)) for at, x in rows.items()}


def _stride(layout: str, x: Tensor, repeats: int | None) -> Tensor:
    nan = torch.nan
    if layout == "transposed":
        # heads inside positions where there are heads, widths outside where there are none
        one, two = (-3, -2) if x.ndim > 3 else (-2, -1)
        return x.transpose(one, two).contiguous().requires_grad_().transpose(one, two)
    if layout == "expanded" and repeats is not None:
        return x.narrow(repeats, 0, 1).clone().requires_grad_().expand(x.shape)
    if layout == "offset":
        return torch.cat([x.new_full((1,), nan), x.flatten()]).requires_grad_()[1:].view(x.shape)
    if layout == "padded":
        return torch.cat([x, x.new_full((*x.shape[:-1], 3), nan)], -1).requires_grad_()[..., : x.shape[-1]]
    if layout == "stepped":
        return torch.stack([x, torch.full_like(x, nan)], -1).flatten(-2).requires_grad_()[..., ::2]
    return x.contiguous().requires_grad_()


def _pack(parts: list[Tensor]) -> list[Tensor]:
    """Slices of one tensor (…, length, all heads and widths), as one projection makes them."""
    flat = [x.transpose(-3, -2).flatten(-2) if x.ndim > 3 else x for x in parts]
    together = torch.cat(flat, -1).requires_grad_()
    cut = together.split([x.shape[-1] for x in flat], -1)
    return [
        y.unflatten(-1, (x.shape[-3], x.shape[-1])).transpose(-3, -2) if x.ndim > 3 else y
        for x, y in zip(parts, cut, strict=True)
    ]


def _score(case: Case, tensors: dict[str, Tensor]) -> Any:
    facts, weight = case.facts, tensors.get("score.0")
    if case.score == "dot":
        return Dot(facts["given scale"], facts["cap"])
    if case.score == "cosine":
        return Cosine(facts["scale"] if weight is None else weight)
    if case.score == "gaussian":
        return Gaussian(facts["width"] if weight is None else weight)
    if case.score == "feature":
        return Feature()
    assert weight is not None
    if case.score == "bilinear":
        return Bilinear(weight)
    if case.score == "additive":
        return Additive(weight, facts["activation"])
    if case.score == "concat":
        return Concat(weight, tensors["score.1"], facts["activation"])
    return functools.partial(user_score, weight=weight)


def _weigh(case: Case, tensors: dict[str, Tensor]) -> Any:
    facts = case.facts
    if case.weigh == "softmax":
        return Softmax(tensors.get("weigh.0"))
    if case.weigh == "relu":
        return Relu(facts["power"], facts["weigh scale"])
    if case.weigh == "sigmoid":
        return Sigmoid(facts["shift"])
    if case.weigh == "sum":
        return Sum()
    if case.weigh == "hard":
        return Hard() if case.gumbel is None else Hard("sample", seed=facts["seed"])
    return Sparsemax() if facts["alpha"] == 2 else Entmax(facts["alpha"])


def _mask(spec: pairs.Spec, case: Case) -> Any:
    name, *rest = spec
    if name in ("and", "or"):
        one, two = (_mask(part, case) for part in rest)
        return one & two if name == "and" else one | two
    if name == "not":
        return ~_mask(rest[0], case)
    if name == "full":
        return Full()
    if name == "allowed":
        return rest[0]
    if name == "lengths":
        # a batch of no sequences says nothing about its shape
        each_query = case.draw.mask == "lengths by query"
        return Lengths(torch.tensor(rest[0], dtype=torch.long).view((case.b, case.n) if each_query else (case.b,)))
    if name == "diagonal":
        before, after, offset = rest
        offset = torch.tensor(offset) if isinstance(offset, list) else offset
        return Causal(offset) if before is None else Window(before, after, offset)
    if name == "document":
        keys, queries = (torch.tensor(x, dtype=torch.long).view(len(x), -1 if x[0] else 0) for x in rest)
        return Document(keys if keys.shape[0] > 1 else keys[0], queries if queries.shape[0] > 1 else queries[0])
    if name == "edges":
        ends = torch.tensor(rest[0], dtype=torch.long).view(-1, 2)
        return Edges(ends[:, 0], ends[:, 1])
    width, radius = rest
    return Grid(case.n // width, width, radius)


def _bias(case: Case, tensors: dict[str, Tensor]) -> Any:
    facts, given = case.facts, tensors.get("bias.0")
    if case.bias == "none":
        return None
    if case.bias == "alibi":
        return Alibi() if given is None else Alibi(given, offset=facts["offset"])
    assert given is not None
    if case.bias == "dense":
        return given
    if case.bias == "relative":
        return Relative(given, max_distance=facts["buckets"]["most"], two_sided=facts["buckets"]["two_sided"])
    return Quadratic(facts["height"], facts["width"], given, tensors["bias.1"])
