"""A call described without its tensors' values: what a backend is chosen by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.core import Bias, Mask, Score, Sizes, Tile, Weigh
from regard.core.bits import keep


def is_capturing() -> bool:
    """Whether a CUDA graph is captured: what it reads must be made within it, and nobody else may have that."""
    return torch.backends.cuda.is_built() and torch.cuda.is_current_stream_capturing()


@dataclass(frozen=True, eq=False)
class Call:
    """A call of `attend`: its sizes, its settled terms, dropout, and whether it needs gradients."""

    sizes: Sizes
    score: Score
    weigh: Weigh
    mask: Mask
    bias: Bias | None = None
    dropout: float = 0.0
    seed: int = 0
    needs_grad: bool = False
    # whether a backend was asked for by its name
    by_name: bool = False
    # what backends made of the first call of this kind, for all that follow
    kept: dict[Any, Any] = field(default_factory=dict)

    def change_terms(self, **terms: Any) -> Call:
        """The call with other terms, as `dataclasses.replace` makes it, which takes longer than a small call has."""
        changed = object.__new__(Call)
        changed.__dict__.update(self.__dict__, **terms)
        return changed

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of all computation: float32 for half precision."""
        return torch.float64 if self.sizes.dtype == torch.float64 else torch.float32

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What gradients flow to besides query, key and value."""
        return (*self.score.tensors, *self.weigh.tensors, *(() if self.bias is None else self.bias.tensors))

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """Tensors without gradients that backward reads: autograd raises where one was changed in place."""
        # tensors of inference mode do not count their changes
        return tuple(t for t in self.mask.all_tensors if not t.is_inference())

    def keep(self, tile: Tile) -> Tensor | None:
        """The dropout mask of the tile, scaled by 1/(1 − p), or None without dropout."""
        if self.dropout == 0.0:
            return None
        kept = keep(self.seed, tile, self.dropout).to(self.compute_dtype)
        return kept / (1 - self.dropout)

    def allowed(self, tile: Tile) -> Tensor | None:
        """The mask on a tile, or None where it allows all of it."""
        return None if self.mask.covers(tile) else self.mask.tile(tile)


@dataclass(frozen=True)
class Cost:
    """An estimated cost: operations, bytes of all inputs and outputs, and memory beyond those."""

    operations: float
    bytes: float
    peak: float

    def __str__(self) -> str:
        return (
            f"{_count(self.operations)}flop, {show_bytes(self.bytes)} in and out,"
            f" {show_bytes(self.peak)} extra memory at the peak"
        )


def show_bytes(count: float) -> str:
    """A number of bytes with its unit.

    >>> show_bytes(3 * 2**20)
    '3.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def _count(count: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000 or unit == "T":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
