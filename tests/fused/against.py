"""A call on `fused` and, in float64, on `reference`: interpreted on the CPU, compiled where there is a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard import attend
from regard.weigh import Sum
from tests.incidents.plain import make
from tests.terms import Combination, cotangent, learned, make_inputs, move, names, own
from tests.tolerances import assert_all_close

BACKEND = "fused"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PLACE = f"{BACKEND} on {DEVICE}"


def draw(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    """Random leaves of these shapes."""
    return [move(x, DEVICE) for x in make(*shapes, dtype=dtype, seed=seed)]


def run(rows: Sequence[Tensor], terms: dict[str, Any], backend: str, dropout_seed: int = 3) -> list[Tensor]:
    """Output, and the gradients of the rows and of what the terms learn, under a fixed cotangent."""
    generator = torch.Generator().manual_seed(dropout_seed)
    out = attend(*rows, **terms, generator=generator, backend=backend)
    held = learned(*(terms.get(room) for room in ("score", "weigh", "bias")))
    grads = torch.autograd.grad(out, [*rows, *held], cotangent(out), allow_unused=True, materialize_grads=True)
    return [out.detach(), *grads]


def check(rows: Sequence[Tensor], named: Sequence[str] | None = None, **terms: Any) -> None:
    """Output and all gradients are those of `reference` on the same numbers in float64, within the table."""
    dtype = rows[0].dtype
    terms = {name: move(term, DEVICE, dtype) for name, term in terms.items()}
    actual = run(rows, terms, BACKEND)
    wide = {name: move(term, DEVICE, torch.float64) for name, term in terms.items()}
    exact = run([move(x, DEVICE, torch.float64) for x in rows], wide, "reference")
    assert all(x.dtype == dtype for x in actual)
    # the table of tolerances goes by dtype
    expected = [x.to(dtype) for x in exact]
    if named is None:
        rest = len(actual) - 4
        named = ["output", "dquery", "dkey", "dvalue", *(f"gradient {at} of the terms" for at in range(rest))]
    assert_all_close(actual, expected, named)


def check_combination(combination: Combination, dtype: torch.dtype = torch.float32) -> None:
    is_sum = isinstance(combination.weigh, Sum)
    if is_sum:
        # a total near zero would make every gradient enormous: scores of one sign, and small biases, keep it away
        score, bias = combination.score, combination.bias
        score = own(score.with_tensors([t.abs() + 0.1 for t in score.tensors]))
        bias = own(bias and bias.with_tensors([0.1 * t for t in bias.tensors]))
        combination = replace(combination, score=score, bias=bias)
    rows = [move(x, DEVICE, dtype) for x in make_inputs(combination.sizes, positive=is_sum)]
    check(rows, names(combination), **combination.terms)
