"""Causal and sliding-window masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from regard.core import Mask, Sizes, Tile
from regard.core.sizes import FAR, misfit_offset
from regard.core.terms import unsettled
from regard.mask.integer import misfit_integers


class _Diagonal(Mask):
    """What is common: query i stands at key i + offset, and sees from `before` keys back to `after` ahead."""

    offset: int | Tensor | None

    def _reach(self) -> tuple[int | None, int]:
        raise NotImplementedError

    @property
    def _place(self) -> int | Tensor:
        if self.offset is None:
            raise unsettled(self, "offset")
        return self.offset

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        place = self._place
        if isinstance(place, Tensor):
            if place.numel() == 0:
                return 0, 0
            low, high = torch.aminmax(place)
            return int(low), int(high)
        return place, place

    def misfit(self, sizes: Sizes) -> str | None:
        name, offset = type(self).__name__, self.offset
        if not isinstance(offset, Tensor):
            return misfit_offset(name, offset)
        if tuple(offset.shape) not in ((sizes.b,), sizes.lead):
            return f"{name} offset must be a number or one per sequence ({sizes.b},), got shape {tuple(offset.shape)}."
        return misfit_integers(f"{name} offset", offset, sizes.device, None, None)

    def settle(self, sizes: Sizes) -> Self:
        if isinstance(self.offset, Tensor):
            offset = self.offset.reshape(sizes.b, 1, 1, 1)
            # what lies beyond all keys does so from here on, too
            offset = offset.clamp(-FAR, FAR) if offset.dtype == torch.int64 else offset
            return replace(self, offset=offset)  # type: ignore[call-arg]
        return self if self.offset is not None else replace(self, offset=sizes.m - sizes.n)  # type: ignore[call-arg]

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        place = self._place
        if isinstance(place, Tensor):
            place = place.flatten()[b]
        before, after = self._reach()
        ahead = j - (i + place)
        return ahead <= after if before is None else (ahead <= after) & (ahead >= -before)

    @cached_property
    def _patterns(self) -> dict[tuple[int, int, int, torch.device], Tensor]:
        return {}

    def tile(self, tile: Tile) -> Tensor:
        place = self._place
        if isinstance(place, Tensor) or torch.compiler.is_compiling():
            # a compiled function must not leave a pattern behind
            return self(*tile.index())
        # along the diagonal all tiles look alike: keep the last pattern
        rows, columns = len(tile.i), len(tile.j)
        at = (tile.j.start - tile.i.start - place, rows, columns, tile.device)
        pattern = self._patterns.get(at)
        if pattern is None:
            before, after = self._reach()
            ahead = torch.arange(at[0] - max(rows, 1) + 1, at[0] + columns, device=tile.device)
            band = ahead <= after if before is None else (ahead <= after) & (ahead >= -before)
            pattern = band.unfold(0, columns, 1).flip(0)[:rows].contiguous()
            self._patterns.clear()
            self._patterns[at] = pattern
        return pattern

    def span(self, tile: Tile) -> range:
        before, after = self._reach()
        low, high = self._bounds
        start = tile.j.start if before is None else max(tile.j.start, tile.i.start + low - before)
        stop = min(tile.j.stop, tile.i.stop + high + after)
        return range(start, max(start, stop))

    def covers(self, tile: Tile) -> bool:
        before, after = self._reach()
        low, high = self._bounds
        reached = tile.j.stop - 1 <= tile.i.start + low + after
        return reached and (before is None or tile.j.start >= tile.i.stop - 1 + high - before)


@dataclass(frozen=True, repr=False, eq=False)
class Causal(_Diagonal):
    """The causal mask: query i sees key j ≤ i + offset, itself and the past.

    >>> Causal(0)(0, 0, 1, torch.arange(3))
    tensor([ True,  True, False])

    `offset` None aligns the last query with the last key; or a number, or a tensor with one per sequence (decoding over
    caches of different fill).
    """

    offset: int | Tensor | None = None

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(), cls(-2), cls(torch.tensor([3, 0]))]

    def _reach(self) -> tuple[int | None, int]:
        return None, 0


@dataclass(frozen=True, repr=False, eq=False)
class Window(_Diagonal):
    """A sliding window: query i sees keys from `before` back to `after` ahead of its own place i + offset.

    >>> Window(1, 0, offset=0)(0, 0, 2, torch.arange(4))
    tensor([False,  True,  True, False])

    `offset` as in `Causal`.
    """

    before: int
    after: int
    offset: int | Tensor | None = None

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(2, 0), cls(1, 2, offset=-1), cls(1, 0, offset=torch.tensor([0, 5]))]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.before < 0 or self.after < 0:
            return f"Window reaches must be at least 0, got before={self.before}, after={self.after}."
        # a tensor's places are cut off where they are far: what reaches as far would see them at other keys
        power = 28 if isinstance(self.offset, Tensor) else 63
        if not torch.compiler.is_compiling() and max(self.before, self.after) >= 2**power:
            places = " where offset is a tensor" if power == 28 else ""
            return f"Window reaches must be below 2**{power}{places}, got before={self.before}, after={self.after}."
        return super().misfit(sizes)

    def _reach(self) -> tuple[int | None, int]:
        return self.before, self.after
