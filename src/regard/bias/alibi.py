"""ALiBi, a linear penalty on distance: https://arxiv.org/abs/2108.12409."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from regard.core import Bias, Sizes
from regard.core.sizes import misfit_offset
from regard.core.terms import unsettled


@dataclass(frozen=True, repr=False, eq=False)
class Alibi(Bias):
    """ALiBi, −slope·|i + offset − j|, one slope per head.

    >>> Alibi(torch.tensor([0.5]), offset=0)(0, 0, 2, torch.arange(3))
    tensor([-1.0000, -0.5000, -0.0000])

    `slopes` None takes the paper's geometric series for the call's heads. `offset` None aligns the last query with the
    last key, as masks do.
    """

    slopes: Tensor | None = None
    offset: int | None = None

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(), cls(torch.tensor([0.3, 0.9], dtype=torch.float64), offset=1)]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.slopes is None or tuple(self.slopes.shape) == (sizes.h,):
            return misfit_offset("Alibi", self.offset)
        return f"Alibi slopes must be one per head ({sizes.h},), got shape {tuple(self.slopes.shape)}."

    def settle(self, sizes: Sizes) -> Self:
        slopes = self.slopes
        if slopes is None:
            # a number, also where a compiler has a symbol for it; and a tensor that it knows to want no gradient
            slopes = _make_slopes(operator.index(sizes.h), sizes.device).detach()
        return replace(self, slopes=slopes, offset=sizes.m - sizes.n if self.offset is None else self.offset)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if self.slopes is None or self.offset is None:
            raise unsettled(self, "slopes" if self.slopes is None else "offset")
        return -self.slopes[h] * (i + self.offset - j).abs()


def _make_slopes(num_heads: int, device: torch.device) -> Tensor:
    """Slopes on a device; a graph that made them itself would bring them from the host, and wait, in each call."""
    return torch.tensor(list_slopes(num_heads), dtype=torch.float64, device=device)


# what torch.compiler.assume_constant_result writes, which imports the whole compiler to do so
vars(_make_slopes)["_dynamo_marked_constant"] = True


def list_slopes(num_heads: int) -> list[float]:
    """The paper's slopes: 2^(−8/h), 2^(−16/h), …; between powers of two, every other slope of twice as many heads.

    >>> list_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    if num_heads == 0:
        return []
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * k / power) for k in range(1, power + 1)]
    extra = [2 ** (-4 * k / power) for k in range(1, 2 * power + 1, 2)]
    return slopes + extra[: num_heads - power]
