"""Relative position bias, a learned number for each bucket of distance, as in T5: https://arxiv.org/abs/1910.10683."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from regard.core import Bias, Sizes
from regard.core.sizes import misfit_offset
from regard.core.terms import unsettled


@dataclass(frozen=True, repr=False, eq=False)
class Relative(Bias):
    """Relative position bias, a learned number per head and bucket: `table[h, bucket(j − i − offset)]`.

    >>> Relative(torch.arange(8.0).view(1, 8), max_distance=4, offset=0)(0, 0, 2, torch.arange(4))
    tensor([2., 1., 0., 5.])

    `table` is (heads, buckets). Near distances have buckets of their own, farther ones share them on a logarithmic
    scale up to `max_distance`. With `two_sided` half the buckets are for keys after the query; without, those all count
    as distance zero. `offset` None aligns the last query with the last key.
    """

    table: Tensor
    max_distance: int = 128
    two_sided: bool = True
    offset: int | None = None

    @classmethod
    def samples(cls) -> Sequence[Self]:
        noise = torch.Generator().manual_seed(6)
        table = torch.randn(2, 6, generator=noise, dtype=torch.float64)
        return [cls(table, max_distance=4), cls(table[:, :3].clone(), max_distance=5, two_sided=False, offset=1)]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.table.ndim != 2 or self.table.shape[0] != sizes.h:
            return f"Relative table must be (heads, buckets)=({sizes.h}, …), got shape {tuple(self.table.shape)}."
        buckets = self.table.shape[1]
        side = buckets // 2 if self.two_sided else buckets
        if side < 2 or (self.two_sided and buckets % 2):
            need = "an even number of buckets, at least 4" if self.two_sided else "at least 2 buckets"
            return f"Relative table needs {need}, got {buckets}."
        if self.max_distance <= side // 2:
            return f"Relative max_distance must exceed {side // 2} for {buckets} buckets, got {self.max_distance}."
        return misfit_offset("Relative", self.offset)

    def settle(self, sizes: Sizes) -> Self:
        return replace(self, offset=sizes.m - sizes.n) if self.offset is None else self

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of each signed distance j − i."""
        count = self.table.shape[1]
        base: Tensor | int = 0
        if self.two_sided:
            count //= 2
            base = (ahead > 0) * count
            far = ahead.abs()
        else:
            far = (-ahead).clamp(min=0)
        exact = count // 2
        # float32, as T5 has it: in float64 a few distances would change bucket and trained tables would no longer fit
        grown = torch.log(far.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        shared = (exact + (grown * (count - exact)).long()).clamp(max=count - 1)
        return base + torch.where(far < exact, far, shared)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if self.offset is None:
            raise unsettled(self, "offset")
        return self.table[h, self.bucket(j - (i + self.offset))]
