"""One drawn call on every backend that takes it, judged tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard import attend, explain
from regard.engine.tiles import layout
from tests.fuzz import oracle
from tests.fuzz.build import build, lay_out_grad
from tests.fuzz.data import Case, make_case
from tests.fuzz.draw import Draw
from tests.fuzz.judge import GRADIENT, OUTPUT, Noise, Verdict, compute_dtype, evaluate, find_ill_posed, judge, jumps

BACKENDS = ("reference", "tiled", "sdpa", "auto")
# disturbed evaluations that stand behind eager's own error
DISTURBED = 2


def examine(draw: Draw) -> Iterator[tuple[str, Verdict]]:
    """For each backend that takes the call, a verdict on its output and each gradient."""
    case = make_case(draw)
    ill = find_ill_posed(case)
    case.grad = case.grad.masked_fill(ill.view(*case.grad.shape[:-1], 1), 0.0)
    reference = evaluate(case, torch.float64)
    rivals = find_rivals(case)
    for backend in BACKENDS:
        got = call(case, backend)
        if got is None:
            continue
        output = got["output"]
        if jumps(case):
            if case.weigh == "hard":
                yield backend, judge_ties(case, output, ill)
            rows = ill.view(*output.shape[:-1], 1)
            # not compared there: put the reference in its place
            got["output"] = torch.where(rows, reference["output"].to(output.dtype), output)
        yield backend, judge_zeros(case, got)
        for what, exact in reference.items():
            limit = OUTPUT if what == "output" else GRADIENT
            yield backend, judge(what, got[what], exact, [r[what] for r in rivals], limit)


def find_rivals(case: Case) -> list[dict[str, Tensor]]:
    """Eager's answers: in the call's dtype, and disturbed. Where half precision overflows, in float32 as well."""
    eager = [evaluate(case, case.dtype)]
    if case.dtype in (torch.float16, torch.bfloat16) and not all(x.isfinite().all() for x in eager[0].values()):
        eager.append({at: x.to(case.dtype) for at, x in evaluate(case, torch.float32).items()})
    return eager + [evaluate(case, torch.float64, Noise(compute_dtype(case), seed)) for seed in range(DISTURBED)]


def call(case: Case, backend: str) -> dict[str, Tensor] | None:
    """The library's output and gradients by name, or None where the backend does not take the call."""
    tensors, options = build(case)
    rows = [tensors.pop(at) for at in ("query", "key", "value")]
    described = {at: x for at, x in options.items() if at != "generator"}
    if backend == "sdpa" and "sdpa" in explain(*rows, **described).refusals:
        return None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "BUDGET", case.draw.budget)
        out = attend(*rows, **options, backend=backend)
        leaves = [*rows, *(x for x in tensors.values() if x.requires_grad)]
        grads = torch.autograd.grad(out, leaves, lay_out_grad(case), allow_unused=True, materialize_grads=True)
    assert out.dtype == case.dtype
    return {"output": out.detach()} | dict(zip(case.learned, grads, strict=True))


def judge_zeros(case: Case, got: dict[str, Tensor]) -> Verdict:
    """Queries that see nothing and keys that nobody sees get exact zeros."""
    blind = ~case.allowed.any(-1)
    groups = case.allowed.view(case.b, case.g, -1, case.n, case.m) if case.g else case.allowed[:, :, None]
    unseen = ~groups.any(2).any(-2)
    complaint = ""
    for what, hidden in (("output", blind), ("query", blind), ("key", unseen), ("value", unseen)):
        x = got[what]
        if hidden.numel() * x.shape[-1] != x.numel():
            # one key for several sequences: what one does not see another may
            continue
        if (x.reshape(*hidden.shape, -1)[hidden] != 0).any():
            complaint = f"{what} is not zero where the mask allows nothing"
    return Verdict("zeros", 0, 0, 0, complaint)


def judge_ties(case: Case, output: Tensor, ill: Tensor) -> Verdict:
    """Where several keys are best within rounding, the output must be the value of one of them."""
    if not ill.any():
        return Verdict("ties", 0, 0, 0)
    tensors = {at: case.canonical(at, x) for at, x in case.leaves.items()}
    scores = oracle.score(case, tensors)
    scores = (scores if case.gumbel is None else scores + case.gumbel).masked_fill(~case.allowed, -torch.inf)
    # the widest gap that still counts as a tie is found row by row: all that `find_ill_posed` took for equal
    values = tensors["value"][:, [t * case.g // case.h for t in range(case.h)]]
    rows = output.double().reshape(case.b, case.h, case.n, case.e)
    eps = torch.finfo(case.dtype).eps
    for b, h, i in ill.nonzero().tolist():
        own = values[b, h] * (1.0 if case.keep is None else case.keep[b, h, i][:, None])
        fits = ((own - rows[b, h, i]).abs() <= eps * own.abs()).all(-1) & case.allowed[b, h, i]
        if not fits.any():
            return Verdict("ties", 0, 0, 0, f"row {(b, h, i)} is the value of no key")
    return Verdict("ties", 0, 0, 0)
