"""What is measured, and how much of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from regard.compare.kinds import Dimensions

# in the order they are measured: what is certain first, what takes long last
PARTS = ("operations", "steps", "paths", "cost", "recall", "order", "digits")
# told how much of a part is done, from 0 to 1
Advance = Callable[[float], None]


@dataclass(frozen=True)
class Settings:
    """All that decides a comparison.

    >>> Settings().quicken().is_quick
    True

    `lengths` are those of time and memory; `widths` and `kernels` those that operations, steps and paths are measured
    for. `batches` are sequences at once in time and memory. `has_equal_parameters` gives every layer the width with about
    as many parameters as self-attention has at `dims.width`, in time, memory and what is learned.
    """

    dims: Dimensions = field(default_factory=Dimensions)
    lengths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096)
    widths: tuple[int, ...] = (32, 64, 128)
    kernels: tuple[int, ...] = (3, 5, 7)
    batches: tuple[int, ...] = (1, 16)
    has_equal_parameters: bool = False
    device: str = "cpu"
    seed: int = 0
    is_quick: bool = False
    parts: tuple[str, ...] = PARTS

    def quicken(self) -> Self:
        """Less of everything, for a first look."""
        return replace(self, is_quick=True, lengths=tuple(n for n in self.lengths if n <= 1024))
