"""Every term of the library at sizes that suit it, found by walking the rooms: what test tables are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import regard
from regard.core import Bias, Mask, Score, Sizes, Term, Weigh
from regard.mask import Causal, Document, Edges, Full, Grid, Lengths, Window

ROOMS: dict[str, ModuleType] = {
    "score": regard.score, "weigh": regard.weigh, "mask": regard.mask, "bias": regard.bias,
}  # fmt: skip

# samples() are made for these; a grid of 2 × 3 cells wants six queries and six keys
SAMPLE_SIZES = (
    Sizes(lead=(2,), h=2, g=2, n=5, m=7, d=3, c=3, e=3, dtype=torch.float64),
    Sizes(lead=(2,), h=2, g=2, n=6, m=6, d=3, c=3, e=3, dtype=torch.float64),
)


def list_classes(room: str) -> list[type[Term]]:
    """The public terms of a room."""
    return [getattr(ROOMS[room], name) for name in ROOMS[room].__all__]


def list_samples(room: str) -> list[Term]:
    """All samples of all terms of a room."""
    return [sample for cls in list_classes(room) for sample in cls.samples()]


def list_compositions() -> list[Mask]:
    """Masks made of masks: each operator, nested, and one that allows nothing."""
    documents = Document(torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.tensor([0, 1, 1, 2, 0]))
    return [
        Causal() & Lengths(torch.tensor([6, 3])),
        Window(1, 1, offset=0) | Edges(torch.tensor([0, 4, 2]), torch.tensor([6, 0, 3])),
        ~Window(0, 0, offset=0),
        (documents | Lengths(torch.tensor([0, 2]))) & ~Causal(-1),
        ~Full(),
        Grid(3, 2) & Causal(),
    ]


@dataclass(frozen=True)
class Combination:
    """One choice of all four terms, and the sizes at which they fit together."""

    sizes: Sizes
    score: Score
    weigh: Weigh
    mask: Mask
    bias: Bias | None

    def __str__(self) -> str:
        return f"{self.score} × {self.weigh} × {self.mask} × {self.bias}"

    @property
    def terms(self) -> dict[str, Any]:
        return {"score": self.score, "weigh": self.weigh, "mask": self.mask, "bias": self.bias}


def combine(score: Score, weigh: Weigh, mask: Mask, bias: Bias | None) -> Combination | str:
    """The combination at the first sizes that fit all four, or each size's first complaint."""
    reasons = []
    for sizes in SAMPLE_SIZES:
        complaints = (term.misfit(sizes) for term in (score, weigh, mask, bias) if term is not None)
        reason = next((c for c in complaints if c is not None), None)
        if reason is None:
            return Combination(sizes, score, weigh, mask, bias)
        reasons.append(f"at {sizes.n}×{sizes.m}: {reason}")
    return " ".join(reasons)


def walk(score: Score, weigh: Weigh, learn_bias: bool = True) -> Iterator[Combination | str]:
    """A score and a weigher with every mask and every bias, all with learned leaves of their own."""
    score, weigh = own(score), own(weigh)
    biases = [None, *(own(bias) if learn_bias else bias for bias in list_samples("bias"))]
    for mask in (*list_samples("mask"), *list_compositions()):
        for bias in biases:
            yield combine(score, weigh, mask, bias)


def make_inputs(sizes: Sizes, seed: int = 0, positive: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Leaves query, key and value of a call; `positive` keeps row sums away from zero."""
    noise = torch.Generator().manual_seed(seed)
    shapes = ((sizes.h, sizes.n, sizes.d), (sizes.g, sizes.m, sizes.c), (sizes.g, sizes.m, sizes.e))
    made = []
    for shape in shapes:
        x = torch.randn(*sizes.lead, *shape, generator=noise, dtype=torch.float64)
        made.append((x.abs() + 0.3 if positive else x).to(sizes.dtype).requires_grad_())
    query, key, value = made
    return query, key, value


def own(term: Any) -> Any:
    """The term with learned leaves of its own, so that gradients can be asked of them."""
    if term is None or not term.tensors:
        return term
    return term.with_tensors([t.detach().clone().requires_grad_() for t in term.tensors])


def move(value: Any, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Any:
    """A tensor, or a term and the terms within it, on another device and with its numbers in another dtype.

    What is moved is a leaf again, and requires gradients where it did before.
    """
    if isinstance(value, Tensor):
        moved = value.detach().to(device, dtype if value.is_floating_point() else value.dtype, copy=True)
        return moved.requires_grad_(value.requires_grad)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: move(getattr(value, f.name), device, dtype) for f in fields(value)})
    return value


def learned(*terms: Term | None) -> list[Tensor]:
    """What gradients flow to inside the terms."""
    return [t for term in terms if term is not None for t in term.tensors if t.requires_grad]


def run(combination: Combination, inputs: tuple[Tensor, ...], backend: str, **options: Any) -> tuple[Tensor, ...]:
    """The output, and the gradients of query, key, value and the terms' learned tensors under a fixed cotangent."""
    out = regard.attend(*inputs, **combination.terms, backend=backend, **options)
    leaves = [*inputs, *learned(*combination.terms.values())]
    grads = torch.autograd.grad(out, leaves, cotangent(out), materialize_grads=True, allow_unused=True)
    return out.detach(), *grads


def names(combination: Combination) -> list[str]:
    """What `run` returns, by name."""
    named = ["output", "gradient of query", "gradient of key", "gradient of value"]
    for term in combination.terms.values():
        named += [f"gradient {at} of {term}" for at in range(len(learned(term)))]
    return named


def cotangent(out: Tensor) -> Tensor:
    """A fixed gradient that treats no two entries alike."""
    steps = torch.arange(out.numel(), dtype=torch.float64, device=out.device)
    return torch.sin(1.7 * steps + 0.4).view(out.shape).to(out.dtype)
