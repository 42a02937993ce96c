"""What a call asks of the kernels, in numbers and names alone: which fragments, and with which constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch


@dataclass(frozen=True)
class Recipe:
    """The choices that a kernel is made by.

    Operators of torch take no objects: it travels as text, `reach` and `numbers`. Those may follow the sizes of a call,
    and torch.compile, which compiles for each text anew, would have no end of it.
    """

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
        # by means that torch.compile can follow, which json's are not
        options = (("before", self.before), ("after", self.after), ("cap", self.cap), ("grid", self.grid))
        has = [name for name, x in (*options, ("draws", self.draws or None)) if x is not None]
        return ";".join([self.score, self.weigh, self.bias or "", ",".join(has), ",".join(self.marks)])

    @property
    def reach(self) -> list[int]:
        """Before, after, place and grid, zero where there is none."""
        return [0 if x is None else x for x in (self.before, self.after, self.place, *(self.grid or (0, 0, 0)))]

    @property
    def numbers(self) -> list[float]:
        """Scale, cap, power and dropout, zero where there is none."""
        return [0.0 if x is None else float(x) for x in (self.scale, self.cap, self.power, self.dropout)]

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


@lru_cache(512)
def parse(text: str, reach: tuple[int, ...] = (0,) * 6, numbers: tuple[float, ...] = (0.0,) * 4) -> Recipe:
    """
    >>> parse(str(Recipe("dot", "softmax", after=3, marks=("lengths",))), (0, 3, 0, 0, 0, 0)).after
    3
    """
    score, weigh, bias, has, marks = text.split(";")
    options = has.split(",")
    before, after, place, width, rows, columns = reach
    scale, cap, power, dropout = numbers
    return Recipe(
        score, weigh, scale, cap if "cap" in options else None, power, before if "before" in options else None,
        after if "after" in options else None, (width, rows, columns) if "grid" in options else None, bias or None,
        place, dropout, "draws" in options, tuple(marks.split(",")) if marks else (),
    )  # fmt: skip
