"""The base class of masks, and how masks compose: True means attend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from regard.core.sizes import Sizes, Tile
from regard.core.terms import Term


@dataclass(frozen=True, repr=False)
class Mask(Term):
    """Which query may attend to which key, as a rule on index tensors; `&`, `|` and `~` compose.

    `span` and `covers` are promises that let engines skip work: no key outside the span is allowed, every pair of a
    covered tile is. The defaults promise nothing.
    """

    learns = False

    @property
    def is_data_dependent(self) -> bool:
        """Whether the values of its tensors decide what is computed, which no compiler can trace."""
        return False

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """True where query i of head h of sequence b may attend to key j; index tensors broadcast."""
        raise NotImplementedError

    def tile(self, tile: Tile) -> Tensor:
        """The rule on a whole tile, broadcastable to its shape."""
        return self(*tile.index())

    def span(self, tile: Tile) -> range:
        """An interval of the tile's keys, outside of which no key is allowed for any of its queries."""
        return tile.j

    def covers(self, tile: Tile) -> bool:
        """Whether every pair of the tile is known to be allowed."""
        return False

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)

    def __invert__(self) -> Mask:
        return Not(self)


@dataclass(frozen=True, repr=False)
class _Two(Mask):
    one: Mask
    other: Mask

    @classmethod
    def samples(cls) -> Sequence[Self]:
        # compositions are sampled where there are masks to compose
        return []

    @property
    def is_data_dependent(self) -> bool:
        return self.one.is_data_dependent or self.other.is_data_dependent

    def misfit(self, sizes: Sizes) -> str | None:
        return self.one.find_misfit(sizes) or self.other.find_misfit(sizes)

    def settle(self, sizes: Sizes) -> Self:
        return type(self)(self.one.settle(sizes), self.other.settle(sizes))


@dataclass(frozen=True, repr=False)
class And(_Two):
    """Pairs that both masks allow."""

    def __repr__(self) -> str:
        return f"({self.one} & {self.other})"

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.one(b, h, i, j) & self.other(b, h, i, j)

    def tile(self, tile: Tile) -> Tensor:
        if self.one.covers(tile):
            return self.other.tile(tile)
        if self.other.covers(tile):
            return self.one.tile(tile)
        return self.one.tile(tile) & self.other.tile(tile)

    def span(self, tile: Tile) -> range:
        one, other = self.one.span(tile), self.other.span(tile)
        return range(max(one.start, other.start), min(one.stop, other.stop))

    def covers(self, tile: Tile) -> bool:
        return self.one.covers(tile) and self.other.covers(tile)


@dataclass(frozen=True, repr=False)
class Or(_Two):
    """Pairs that either mask allows."""

    def __repr__(self) -> str:
        return f"({self.one} | {self.other})"

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.one(b, h, i, j) | self.other(b, h, i, j)

    def tile(self, tile: Tile) -> Tensor:
        return self.one.tile(tile) | self.other.tile(tile)

    def span(self, tile: Tile) -> range:
        spans = [s for s in (self.one.span(tile), self.other.span(tile)) if s]
        if not spans:
            return range(tile.j.start, tile.j.start)
        return range(min(s.start for s in spans), max(s.stop for s in spans))

    def covers(self, tile: Tile) -> bool:
        return self.one.covers(tile) or self.other.covers(tile)


@dataclass(frozen=True, repr=False)
class Not(Mask):
    """Pairs that the mask does not allow."""

    one: Mask

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return []

    def __repr__(self) -> str:
        return f"~{self.one}"

    @property
    def is_data_dependent(self) -> bool:
        return self.one.is_data_dependent

    def misfit(self, sizes: Sizes) -> str | None:
        return self.one.find_misfit(sizes)

    def settle(self, sizes: Sizes) -> Self:
        return type(self)(self.one.settle(sizes))

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ~self.one(b, h, i, j)

    def tile(self, tile: Tile) -> Tensor:
        return ~self.one.tile(tile)

    def span(self, tile: Tile) -> range:
        return range(tile.j.start, tile.j.start) if self.one.covers(tile) else tile.j

    def covers(self, tile: Tile) -> bool:
        return not self.one.span(tile)
