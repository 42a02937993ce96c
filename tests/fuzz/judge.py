"""The rule: an answer's error against float64 is at most so many times eager's own error in the same dtype.

Eager's own error is what the plain code of `oracle` makes of the same call in the call's dtype. That alone can be zero
by luck (one key, powers of two, a sum that cancels), so it counts as no less than the error of an exact evaluation in
which every number is once rounded at random: Monte Carlo arithmetic (https://doi.org/10.1109/5992.814657). Half
precision is disturbed by float32's rounding, since that is what the library computes it in.

The floor is flash-attention's, 2·|(ref + 0.3 − 0.3) − ref|, but never more than one unit in the last place of the
tensor's largest number: below about 1e-8 the former is twice the whole tensor, and zeros would pass for an answer.

The largest error of a tensor says nothing of its small rows, which may be wrong altogether: so each row is held to
eager's own error in that row as well, and more loosely, since of thousands of rows some are lucky.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tests.fuzz import oracle, settings
from tests.fuzz.data import Case

# how many times eager's own error: for outputs, for gradients, and for the mean of either
OUTPUT, GRADIENT, MEAN = 2.0, 3.0, 1.5
# and for the row that does worst; a reference in float64 cannot judge the rows of float64
ROW = 8.0
# a score this many times closer to a kink than rounding moves it has no one answer, nor one that moves by this much
NEAR, LOST = 64.0, 1.0
# vector registers hold eight numbers of float32
LANES = 8
# numbers in a row, more or less: so few may all be exact by luck
FEW = 64


class _Disturb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, noise: Noise, only_gradient: bool) -> Tensor:
        ctx.noise = noise
        return x.clone() if only_gradient else noise.disturb(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return ctx.noise.disturb(grad), None, None


class Noise:
    """Rounding as a random event: every number marked in `oracle`, and its gradient, moves by up to half an ulp."""

    def __init__(self, dtype: torch.dtype, seed: int, moves_inputs: bool = True, device: str = settings.ORACLE) -> None:
        info = torch.finfo(dtype)
        # relative, and the fixed step between numbers too small to be normal
        self.unit, self.step = info.eps / 2, info.eps * info.smallest_normal
        # products of half precision are summed up in float32
        self.unit_of_sums = min(self.unit, torch.finfo(torch.float32).eps / 2)
        # eager code may normalise the weights, or what they summed up: try both, since they round in other places
        self.divides_last = bool(seed % 2)
        # inputs are exact: to move them stands for what has no mark, above all the sums in backward
        self.moves_inputs = moves_inputs
        self.generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, x: Tensor) -> Tensor:
        disturbed: Tensor = _Disturb.apply(x, self, False)
        return disturbed

    def take(self, x: Tensor) -> Tensor:
        """An input of the call."""
        taken: Tensor = _Disturb.apply(x, self, not self.moves_inputs)
        return taken

    def add_rounding_of_sum(self, product: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Each of the k sums on the way to a product rounds: by so much of what was summed up until then.

        Eager code sums in lanes of every eighth term. In an order that knows nothing of the terms, with total S and
        sum of squares Q, the square of what a lane holds on its way is S²/3L² + (Q − S²/k)(1/2L − 1/3L²) on average,
        and where the lanes meet it is up to S². (Terms of one sign make the first part large, of both the second.)
        """
        with torch.no_grad():
            terms = left.shape[-1]
            lanes = max(1, min(LANES, terms))
            total = product.square()
            spread = (left.square() @ right.square() - total / max(1, terms)).clamp(min=0)
            held = total / (3 * lanes**2) + spread * (1 / (2 * lanes) - 1 / (3 * lanes**2))
            size = (terms * held + total).sqrt()
        return product + self.unit_of_sums * size * self._draw(size)

    def disturb(self, x: Tensor) -> Tensor:
        # zero rounds to zero: moved by a step, the weights of a row that sees nothing would be anything
        return torch.where(x.isfinite() & (x != 0), x + (self.unit * x.abs() + self.step) * self._draw(x), x)

    def _draw(self, like: Tensor) -> Tensor:
        return torch.rand(like.shape, generator=self.generator, dtype=like.dtype, device=like.device) * 2 - 1


def score_dtype(case: Case) -> torch.dtype:
    """What scores are exact to: kernels make a product of rows that were changed, and rounded, before."""
    is_changed = case.score in ("bilinear", "cosine", "feature")
    return case.dtype if is_changed and "fused" in settings.BACKENDS else compute_dtype(case)


def compute_dtype(case: Case) -> torch.dtype:
    """What the library computes the call in; a user's function is handed its tiles as they came."""
    if case.score == "callable" or case.dtype == torch.float64:
        return case.dtype
    return torch.float32


def evaluate(
    case: Case, dtype: torch.dtype, rounded: oracle.Rounded = oracle.exactly, by_torch: bool = False
) -> dict[str, Tensor]:
    """The oracle's output and gradients by name, computed in `dtype`."""
    leaves = {at: x.to(dtype).requires_grad_(at in case.learned) for at, x in case.leaves.items()}
    tensors = {at: case.canonical(at, x) for at, x in leaves.items()}
    out = oracle.torch_attention(case, tensors) if by_torch else oracle.attention(case, tensors, rounded)
    grad = case.grad.to(dtype).reshape(out.shape)
    grads = torch.autograd.grad(
        out, [leaves[at] for at in case.learned], grad, allow_unused=True, materialize_grads=True
    )
    answer = {"output": out.detach().reshape(case.grad.shape)}
    return answer | dict(zip(case.learned, grads, strict=True))


def evaluate_in_order(
    case: Case, dtype: torch.dtype, rounded: oracle.Rounded, largest_first: bool
) -> dict[str, Tensor]:
    """The same call with its features sorted by size: small ones first sum up most exactly, large ones first least."""
    sizes = [case.leaves[at].abs().flatten(0, -2).sum(0) for at in ("query", "key")]
    if case.score not in ("bilinear", "concat"):
        # these two may differ in width, and meet in no product feature by feature
        sizes = [sizes[0] * sizes[1]] * 2
    wide, narrow = (size.argsort(descending=largest_first) for size in sizes)

    def sort(at: str, x: Tensor, d: Tensor, c: Tensor) -> Tensor:
        if at == "score.0" and case.score == "bilinear":
            return x[..., d, :][..., c]
        if at == "query" or (at == "score.0" and case.score != "cosine" and x.ndim):
            return x[..., d]
        return x[..., c] if at in ("key", "score.1") else x

    there = replace(case, leaves={at: sort(at, x, wide, narrow) for at, x in case.leaves.items()})
    answer = evaluate(there, dtype, rounded)
    return {at: sort(at, x, wide.argsort(), narrow.argsort()) for at, x in answer.items()}


def find_ill_posed(case: Case) -> Tensor:
    """Rows (b, h, n) in which rounding alone may cross a kink, so that no one answer is right.

    Their output gradient is set to zero, and where even the output jumps (see `jumps`) it is not compared.
    """
    nobody = torch.zeros(case.b, case.h, case.n, dtype=torch.bool, device=settings.ORACLE)
    if case.m == 0:
        return nobody
    tensors = {at: case.canonical(at, x) for at, x in case.leaves.items()}
    scores = oracle.score(case, tensors)
    moved = oracle.score(case, tensors, Noise(score_dtype(case), 0))
    shift = (moved - scores).abs().amax(-1)
    if case.weigh in ("softmax", "sigmoid", "entmax"):
        # rounding alone changes the weights by a factor: scores of 1e9 in float32 are whole hundreds
        nobody = shift > LOST
    reach = NEAR * shift[..., None]
    if case.gumbel is not None:
        scores = scores + case.gumbel
        reach = reach + NEAR * torch.finfo(compute_dtype(case)).eps * case.gumbel.abs().amax(-1, keepdim=True)
    shown = scores.masked_fill(~case.allowed, -torch.inf)
    if case.weigh == "hard":
        best = shown.amax(-1, keepdim=True)
        return ((shown >= best - reach) & case.allowed).sum(-1) > 1
    if case.weigh == "relu" and case.facts["power"] == 1:
        return ((scores.abs() <= reach) & case.allowed).any(-1)
    if case.weigh == "entmax" and case.facts["alpha"] == 2:
        weights = oracle.weigh(case, tensors, scores)
        # tau from the support: score − weight is the same for all of it
        tau = torch.where(weights > 0, scores - weights, torch.inf).amin(-1, keepdim=True)
        return nobody | (((scores - tau).abs() <= reach) & case.allowed).any(-1)
    if case.weigh == "sum":
        total = scores.masked_fill(~case.allowed, 0.0).sum(-1, keepdim=True)
        return ((total.abs() <= reach * case.m) & case.allowed).any(-1)
    return nobody


def jumps(case: Case) -> bool:
    """Whether the output itself is not continuous at a kink."""
    return case.weigh in ("hard", "sum")


@dataclass(frozen=True)
class Verdict:
    """How an answer did: its errors as multiples of eager's own, beyond the floor, and what they may be."""

    what: str
    worst: float
    mean: float
    limit: float
    complaint: str = ""
    row: float = 0.0

    @property
    def is_good(self) -> bool:
        # written so that NaN fails
        return not self.complaint and self.worst <= self.limit and self.row <= ROW

    def __str__(self) -> str:
        size = f"error {self.worst:.3g} times eager's own, allowed are {self.limit:g}"
        row = f"; in one row {self.row:.3g} times, allowed are {ROW:g}"
        return f"{self.what}: {self.complaint or size + row}"


def judge(
    what: str, got: Tensor, reference: Tensor, rivals: Sequence[Tensor], limit: float, of_few: Sequence[Tensor] = ()
) -> Verdict:
    """One tensor against float64. The worst of the finite `rivals` sets eager's own error.

    Those `of_few` count where few numbers are looked at: in rows, and in a tensor that is as small as a row.
    """
    if got.shape != reference.shape:
        return Verdict(what, 0, 0, limit, f"shape {tuple(got.shape)}, expected {tuple(reference.shape)}")
    if not reference.isfinite().all():
        return Verdict(what, 0, 0, limit, "the reference is not finite: nothing was tested")
    target = reference.to(got.dtype)
    # beyond the dtype's range there is no answer to compare, nor where its end is so near that eager falls over it
    inside = target.isfinite()
    inside &= ~(got.isinf() & torch.stack([r.to(got.dtype) == got for r in rivals]).any(0))
    if (got.isnan() & inside).any():
        return Verdict(what, 0, 0, limit, f"{int((got.isnan() & inside).sum())} NaN where the reference has none")
    if not inside.any():
        return Verdict(what, 0, 0, limit)
    off = lambda x: torch.where(inside, (x.double() - reference).abs(), 0.0)  # noqa: E731
    error = off(got)
    own, more = ([off(r) for r in some if (r.isfinite() | ~inside).all()] for some in (rivals, of_few))
    if not own:
        return Verdict(what, 0, 0, limit, "eager itself fails: nothing was tested")
    spread = torch.where(inside, (((target + 0.3) - 0.3) - target).double().abs(), 0.0)
    info = torch.finfo(got.dtype)
    size = torch.where(inside, target.double().abs(), 0.0)

    def compare(own: list[Tensor], measure: Callable[[Tensor], Tensor], most: Callable[[Tensor], Tensor]) -> float:
        """The largest multiple of eager's own, by one measure of errors, beyond a floor from their largest numbers."""
        # below the smallest normal number all are equally far apart
        floor = torch.minimum(2 * most(spread), info.eps * most(size).clamp(min=info.smallest_normal))
        excess = (measure(error) - floor).clamp(min=0)
        rival = torch.stack([measure(e) for e in own]).amax(0)
        return torch.where(excess > 0, excess / rival, 0.0).max().item()

    by_row = lambda x: x.amax(-1)  # noqa: E731
    return Verdict(
        what,
        compare([*own, *more] if got.numel() < FEW else own, torch.max, torch.max),
        compare(own, lambda x: x.sum() / inside.sum(), torch.max),
        limit,
        row=compare([*own, *more], by_row, by_row) if got.ndim > 1 and got.dtype != torch.float64 else 0.0,
    )
