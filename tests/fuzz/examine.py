"""One drawn call on every backend that takes it, judged tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pytest
import torch
from torch import Tensor

from regard import RegardError, attend
from regard.engine.tiles import layout
from tests.fuzz import formulas, oracle, settings
from tests.fuzz.build import build, lay_out_grad
from tests.fuzz.data import Case, make_case
from tests.fuzz.draw import Draw
from tests.fuzz.judge import (
    GRADIENT,
    OUTPUT,
    Noise,
    Verdict,
    compute_dtype,
    evaluate,
    evaluate_in_order,
    find_ill_posed,
    judge,
    jumps,
)

# disturbed evaluations that stand behind eager's own error, and behind a verdict against a backend: of few numbers, or
# of many that share one error, a handful of draws says little
DISTURBED, BEFORE_CONDEMNED, COARSE = 2, 64, 16
# what the oracle may differ by from another reference, in parts of a tensor's largest number; and of what a gradient
# would be, were no weight so near zero or one that float64 can not tell
AGREEMENT, VANISHED = 1e-9, 1e-14
ROWS = ("query", "key", "value")
HALF = (torch.float16, torch.bfloat16)

# products that are less exact than their dtype would be excuses
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

Answer = dict[str, Tensor]


def examine(draw: Draw, backends: Sequence[str] = settings.BACKENDS) -> Iterator[tuple[str, Verdict]]:
    """For each backend that takes the call, a verdict on its output and each gradient."""
    case = make_case(draw)
    ill = find_ill_posed(case)
    case.grad = case.grad.masked_fill(ill.view(*case.grad.shape[:-1], 1), 0.0)
    reference = answer(case)
    if is_by_formulas(case):
        yield "oracle", judge_oracle(case, reference, ill)
    yardstick = Yardstick(case, reference)
    for backend in backends:
        # `auto` is one of the others by another name: one call in four will do
        if backend == "auto" and draw.seed % 4 and len(backends) > 1:
            continue
        got = None if is_interpreted_in_bfloat16(case, backend) else call(case, backend)
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
            verdict = judge(what, got[what], exact, yardstick.rivals(backend, what), limit)
            if not verdict.is_good:
                yardstick.disturb_more()
                rivals, of_few = yardstick.rivals(backend, what), yardstick.rivals_of_few(backend, what)
                verdict = judge(what, got[what], exact, rivals, limit, of_few)
            yield backend, verdict


def answer(case: Case) -> Answer:
    """What the call should give, by the oracle that the environment asks for."""
    return formulas.answer(case) if is_by_formulas(case) else answer_by_oracle(case)


def is_by_formulas(case: Case) -> bool:
    # an oracle in float64 is no more exact than the float64 that it judges
    is_as_coarse = settings.REFERENCE == "auto" and case.dtype == torch.float64
    return settings.REFERENCE == "formulas" or is_as_coarse


def answer_by_oracle(case: Case) -> Answer:
    return evaluate_in_order(case, torch.float64, oracle.exactly, largest_first=False)


class Yardstick:
    """Eager's answers to one call, against which a backend is measured."""

    def __init__(self, case: Case, reference: Answer) -> None:
        self.case, self.reference = case, reference
        self.disturbed = [self._disturb(seed) for seed in range(DISTURBED)]
        self.other: list[Answer] = []

    def rivals(self, backend: str, what: str) -> list[Tensor]:
        return [answer[what] for answer in (*self._list_eager(backend), *self.other, *self.disturbed)]

    def rivals_of_few(self, backend: str, what: str) -> list[Tensor]:
        """What half precision makes of few numbers, for a backend that rounds to it on the way."""
        computes_in_float32 = backend in ("reference", "tiled") or self.case.dtype not in HALF
        return [] if computes_in_float32 else [answer[what] for answer in self._coarse]

    def disturb_more(self) -> None:
        """All that a verdict against a backend stands on."""
        if not self.other and self.case.weigh in ("softmax", "sum"):
            self.other.append(self._dividing_last)
        self.disturbed += [self._disturb(seed) for seed in range(len(self.disturbed), BEFORE_CONDEMNED)]

    def _disturb(self, seed: int) -> Answer:
        return evaluate(self.case, torch.float64, Noise(compute_dtype(self.case), seed))

    @cached_property
    def _coarse(self) -> list[Answer]:
        noises = [Noise(self.case.dtype, seed, moves_inputs=False) for seed in range(COARSE)]
        return [evaluate(self.case, torch.float64, noise) for noise in noises]

    def _list_eager(self, backend: str) -> list[Answer]:
        case = self.case
        if case.dtype == torch.float64:
            eager = [self._plain, self._scaled_down, self._largest_first]
        elif case.dtype in HALF and backend in ("reference", "tiled") and compute_dtype(case) == torch.float32:
            # these compute half precision in float32: so must their rival, or it would excuse too much
            eager = [self._in_float32]
        else:
            eager = [self._plain]
            if case.dtype in HALF and not all(x.isfinite().all() for x in eager[0].values()):
                eager.append(self._in_float32)
        if backend in ("sdpa", "auto") and can_ask_torch(case) and settings.ORACLE == "cpu":
            # eager code of today calls torch's kernel, and this backend can be no better than that; where the kernel is
            # wrong rather than coarse is in tests/incidents/test_torch.py. Of those for the GPU some are wrong where
            # nothing is allowed, which would excuse anything.
            eager.append(self._by_torch)
        return eager

    @cached_property
    def _plain(self) -> Answer:
        return evaluate(self.case, self.case.dtype, oracle.as_is)

    @cached_property
    def _in_float32(self) -> Answer:
        return {at: x.to(self.case.dtype) for at, x in evaluate(self.case, torch.float32, oracle.as_is).items()}

    @cached_property
    def _dividing_last(self) -> Answer:
        answer = evaluate(self.case, compute_dtype(self.case), oracle.dividing_last)
        return {at: x.to(self.case.dtype) for at, x in answer.items()}

    @cached_property
    def _by_torch(self) -> Answer:
        return evaluate(self.case, self.case.dtype, by_torch=True)

    @cached_property
    def _largest_first(self) -> Answer:
        return evaluate_in_order(self.case, self.case.dtype, oracle.as_is, largest_first=True)

    @cached_property
    def _scaled_down(self) -> Answer:
        """What eager code in float64 may be off by: nearly the reference itself, it has its error from float32.

        Rounding errors are proportional to the unit of rounding: float32's, on the same call with numbers that float32
        can hold, is brought down by the ratio of the two units.
        """
        leaves = {at: x.float().double() for at, x in self.case.leaves.items()}
        rounded = replace(self.case, leaves=leaves, grad=self.case.grad.float().double())
        eager, exact = evaluate(rounded, torch.float32, oracle.as_is), evaluate(rounded, torch.float64)
        ratio = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
        return {at: x + (eager[at].double() - exact[at]) * ratio for at, x in self.reference.items()}


def can_ask_torch(case: Case) -> bool:
    is_dot = case.score in ("bilinear", "cosine", "feature") or (case.score == "dot" and case.facts["cap"] is None)
    is_softmax = case.weigh == "softmax" and "weigh.0" not in case.leaves
    return is_dot and is_softmax and case.keep is None and 0 not in (case.n, case.m)


def call(case: Case, backend: str) -> Answer | None:
    """The library's output and gradients by name, or None where the backend does not take the call."""
    tensors, options = build(case)
    rows = [tensors.pop(at) for at in ROWS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "BUDGET", case.budget)
        try:
            out = attend(*rows, **options, backend=backend)
        except RegardError:
            if not may_refuse(case, backend):
                raise
            # a refusal: the other backends take the same call, so it is not the call that is wrong
            return None
        leaves = [*rows, *(x for x in tensors.values() if x.requires_grad)]
        grads = torch.autograd.grad(out, leaves, lay_out_grad(case), allow_unused=True, materialize_grads=True)
    assert out.dtype == case.dtype
    answer = {"output": out.detach()} | dict(zip(case.learned, grads, strict=True))
    return {at: x.to(settings.ORACLE) for at, x in answer.items()}


def may_refuse(case: Case, backend: str) -> bool:
    """Whether it is known that the backend does not take such a call: a kernel that takes nothing is never wrong."""
    if backend == "fused":
        has_no_kernel = case.score == "callable" or case.bias == "quadratic" or case.dtype == torch.float64
        is_steep = case.weigh == "entmax" and case.facts["alpha"] > 2
        return has_no_kernel or is_steep or 0 in (case.b, case.n, case.m)
    return backend == "sdpa"


def is_interpreted_in_bfloat16(case: Case, backend: str) -> bool:
    """Triton's interpreter cuts numbers off where a GPU rounds them: such a call says nothing about the kernel."""
    return backend == "fused" and settings.DEVICE == "cpu" and case.dtype == torch.bfloat16


def judge_oracle(case: Case, reference: Answer, ill: Tensor) -> Verdict:
    """The oracle by another reference: eager's answers are its own, and excuse a mistake that it shares with a backend.

    What it may be off by is what rounding at random makes of its answer.
    """
    own = answer_by_oracle(case)
    disturbed = [evaluate(case, torch.float64, Noise(torch.float64, seed)) for seed in range(DISTURBED)]
    query, key, value, grad = (
        x.abs().max().item() if x.numel() else 0.0 for x in (*(case.leaves[at] for at in ROWS), case.grad)
    )
    agreement, vanished = AGREEMENT, VANISHED
    if case.weigh == "entmax" and case.facts["alpha"] > 2:
        # its derivative has no bound at the threshold, which the oracle looks for: of eps, this root is left
        agreement = vanished = 8 * torch.finfo(torch.float64).eps ** (1 / (case.facts["alpha"] - 1))
    floor = vanished * grad * max(1.0, value) * max(1.0, query, key)
    complaint = ""
    for what, exact in reference.items():
        # rows without one right answer, as `examine` leaves them out
        left_out = ill.view(*exact.shape[:-1], 1) if what == "output" and jumps(case) else ill.new_zeros(())
        size, error, *noise = (
            x.masked_fill(left_out, 0.0).abs().max().item() if x.numel() else 0.0
            for x in (exact, own[what] - exact, *(x[what] - own[what] for x in disturbed))
        )
        if not error <= agreement * size + 16 * max(noise) + floor:
            complaint = f"{what} of the oracle is off by {error:.3g}, of {size:.3g}"
    return Verdict("agreement", 0, 0, 0, complaint)


def judge_zeros(case: Case, got: Answer) -> Verdict:
    """Queries that see nothing and keys that nobody sees get exact zeros."""
    blind = ~case.allowed.any(-1)
    unseen = ~case.allowed.unflatten(1, (case.g, case.h // case.g)).any(2).any(-2)
    complaint = ""
    for what, hidden in (("output", blind), ("query", blind), ("key", unseen), ("value", unseen)):
        x = got[what]
        if hidden.numel() * x.shape[-1] != x.numel():
            # one key for several sequences: what one does not see another may
            continue
        if (x.reshape(*hidden.shape, x.shape[-1])[hidden] != 0).any():
            complaint = f"{what} is not zero where the mask allows nothing"
    return Verdict("zeros", 0, 0, 0, complaint)


def judge_ties(case: Case, output: Tensor, ill: Tensor) -> Verdict:
    """Where several keys are best within rounding, the output must be the value of one that is allowed."""
    values = case.canonical("value", case.leaves["value"])[:, [t * case.g // case.h for t in range(case.h)]]
    rows = output.double().reshape(case.b, case.h, case.n, case.e)
    # one rounding of the value, also in the range where numbers are evenly spaced
    info = torch.finfo(case.dtype)
    b, h, i = ill.nonzero(as_tuple=True)
    for at in torch.arange(len(b), device=b.device).split(max(1, 2**22 // max(1, case.m * case.e))):
        where = b[at], h[at], i[at]
        own = values[where[:2]] * (1.0 if case.keep is None else case.keep[where][..., None])
        near = (own - rows[where][:, None]).abs() <= info.eps * (own.abs() + info.smallest_normal)
        lost = ~(near.all(-1) & case.allowed[where]).any(-1)
        if lost.any():
            row = tuple(int(x[lost][0]) for x in where)
            return Verdict("ties", 0, 0, 0, f"row {row} is the value of no key")
    return Verdict("ties", 0, 0, 0)
