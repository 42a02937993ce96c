"""What a call asks of the kernels, in numbers and names alone: which fragments, and with which constants."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class Recipe:
    """The choices that a kernel is made by. It travels through torch as text, since operators take no objects."""

    score: str  # "dot", "distance", or the activation of an additive score
    weigh: str
    scale: float = 1.0
    cap: float | None = None
    power: float = 1.0  # relu's scale, sigmoid's shift or entmax's alpha
    before: int | None = None
    after: int | None = None
    grid: tuple[int, int, int] | None = None  # width, and how far rows and columns reach
    bias: str | None = None  # "dense", "slopes" or "buckets"
    place: int = 0  # where query i stands for a bias: at key i + place
    dropout: float = 0.0
    draws: bool = False
    marks: tuple[str, ...] = ()  # what the tensors of a mask are

    def __str__(self) -> str:
        return _write(self)

    @property
    def is_dot(self) -> bool:
        return self.score == "dot"

    @property
    def hides(self) -> bool:
        """Whether some pairs may not meet."""
        return self.after is not None or self.grid is not None or any(name != "buckets" for name in self.marks)

    @property
    def solves(self) -> bool:
        """Whether a row is solved before its weights are known."""
        return self.weigh.startswith("entmax") or self.weigh == "hard"

    @property
    def keeps_rows(self) -> bool:
        """Whether a backward pass needs a statistic of each row."""
        return not (self.weigh.startswith("relu") or self.weigh == "sigmoid")

    def keeps_exact(self, dtype: torch.dtype) -> bool:
        """Whether a backward pass needs the output in float32.

        Gradients of features are sums of score gradients, which cancel in each row: they would show how the output was
        rounded. Those of a dot product are weighted by keys, and hide it.
        """
        return self.takes_means and not self.is_dot and dtype != torch.float32

    @property
    def takes_means(self) -> bool:
        """Whether a row's mean of the weights' gradient is its output times the output's gradient."""
        return self.weigh in ("softmax", "sum")


@cache
def _write(recipe: Recipe) -> str:
    return json.dumps(asdict(recipe))


@cache
def parse(text: str) -> Recipe:
    """
    >>> parse(str(Recipe("dot", "softmax", marks=("lengths",)))).marks
    ('lengths',)
    """
    fields = json.loads(text)
    fields["marks"] = tuple(fields["marks"])
    fields["grid"] = fields["grid"] and tuple(fields["grid"])
    return Recipe(**fields)
