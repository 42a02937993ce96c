"""What is measured, and how much of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from regard.compare.registry import list_parts
from regard.core import RegardError

# told how much of a part is done, from 0 to 1
Advance = Callable[[float], None]
# of a first look: the longest of time and memory, and the seconds it may measure, so that all is done in a minute
QUICK, QUICK_SECONDS = 512, 44.0


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a layer: d, k, and what attention has beside them."""

    width: int = 64
    kernel: int = 3
    heads: int = 4
    window: int = 32

    def widen(self, width: int) -> Self:
        """The same at this width, or at the next that heads share evenly."""
        return replace(self, width=-(-width // self.heads) * self.heads)


@dataclass(frozen=True)
class Settings:
    """All that decides a comparison.

    >>> Settings(lengths=(64, 128, 256)).quicken().is_quick
    True

    `lengths` and `batches` are those of time and memory; `widths` and `kernels` those of operations, steps and paths.
    `has_equal_parameters` gives every layer the width with about as many parameters as self-attention has, at
    `dims.width` in time and memory, at 32 in what is learned. What `seconds` are too short for is listed as `skipped`.
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
    seconds: float | None = None
    parts: tuple[str, ...] = field(default_factory=lambda: tuple(list_parts()))

    def __post_init__(self) -> None:
        for name in ("lengths", "widths", "kernels", "batches"):
            object.__setattr__(self, name, _sort_numbers(name, getattr(self, name)))
        for name, number in asdict(self.dims).items():
            _check_number(name, number, 1)
        _check_number("seed", self.seed, 0)
        if len(self.lengths) < 3:
            raise RegardError(f"lengths must be at least three, to fit a power to, got {list(self.lengths)}.")
        if wrong := [k for k in (self.dims.kernel, *self.kernels) if k < 3 or k % 2 == 0]:
            raise RegardError(f"a kernel must be odd and at least 3, to reach its neighbours, got {wrong[0]}.")
        if self.dims.window < 2:
            raise RegardError(f"window must be at least 2, got {self.dims.window}.")
        if wrong := [width for width in (self.dims.width, *self.widths) if width % self.dims.heads]:
            raise RegardError(f"width {wrong[0]} must be a multiple of heads={self.dims.heads}, which share it.")
        if self.seed >= 2**32:
            raise RegardError(f"seed must be below 2**32, got {self.seed}.")
        if self.seconds is not None and not (isinstance(self.seconds, int | float) and 0 < self.seconds < float("inf")):
            raise RegardError(f"seconds must be a number above 0, or None for no limit, got {self.seconds!r}.")
        unknown = [str(part) for part in self.parts if part not in list_parts()]
        if unknown or not self.parts:
            raise RegardError(f"parts must be some of {', '.join(list_parts())}, got {', '.join(unknown) or 'none'}.")
        # whatever order they were named in
        object.__setattr__(self, "parts", tuple(part for part in list_parts() if part in self.parts))

    def quicken(self) -> Self:
        """Less of everything, for a first look; lengths above 512 go, unless that leaves too few."""
        short = tuple(n for n in self.lengths if n <= QUICK)
        lengths = short if len(short) > 2 else self.lengths
        return replace(self, is_quick=True, seconds=QUICK_SECONDS, lengths=lengths)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it.

        >>> Settings(kernels=(3, 5)).to_dict()["kernels"]
        [3, 5]
        """
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def _sort_numbers(name: str, numbers: Any) -> tuple[int, ...]:
    """The numbers once each, the smallest first."""
    if isinstance(numbers, str) or not isinstance(numbers, Sequence) or not numbers:
        raise RegardError(f"{name} must be a list of whole numbers, got {numbers!r}.")
    for number in numbers:
        _check_number(name, number, 1)
    return tuple(sorted(set(numbers)))


def _check_number(name: str, number: Any, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise RegardError(f"{name} must be a whole number of at least {least}, got {number!r}.")
