"""A call prepared for tiles: its pair, its layout, and the arithmetic of a tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from regard.core import Pair, Row, Tile
from regard.engine.call import Call
from regard.engine.tiles.layout import Layout, lay_out
from regard.engine.tiles.steps import Steps


@dataclass(frozen=True, eq=False)
class Work:
    """A call, its pair and how tiles are cut; `steps` does the arithmetic of one tile."""

    call: Call
    pair: Pair
    steps: Steps
    budget: int
    # the pair's tensors may be replaced by others of the same shapes, which the pair itself does not know
    of_pair: tuple[Tensor, ...]

    @cached_property
    def layout(self) -> Layout:
        whole = isinstance(self.call.weigh, Row)
        return lay_out(self.call.sizes, self.call.mask, self.pair, whole, self.budget)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What gradients flow to besides query, key and value."""
        bias = () if self.call.bias is None else self.call.bias.tensors
        return (*self.of_pair, *self.call.weigh.tensors, *bias)

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """The constants of the call, and those of a user's function."""
        return (*self.call.constants, *(t for t in self.pair.constants if not t.is_inference()))

    def split(self, tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Tensors in the order of `tensors` as those of pair, weigher and bias."""
        first = len(self.of_pair)
        second = first + len(self.call.weigh.tensors)
        return tensors[:first], tensors[first:second], tensors[second:]

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Work:
        """The same work with other tensors."""
        pair, weigh, bias = self.split(tensors)
        call = replace(self.call, weigh=self.call.weigh.with_tensors(weigh))
        if call.bias is not None:
            call = replace(call, bias=call.bias.with_tensors(bias))
        return replace(self, call=call, of_pair=pair)

    def of_heads(self, tile: Tile) -> tuple[Tensor, ...]:
        """The pair's tensors, cut to the tile's heads."""
        if self.pair.keeps_heads:
            return self.of_pair
        return tuple(cut_heads(t, tile) for t in self.of_pair)


def cut_heads(tensor: Tensor, tile: Tile) -> Tensor:
    """The tile's part of a tensor that leads with a head axis, or all of it where that axis is one."""
    return tensor if tensor.shape[0] == 1 else tensor[tile.h.start : tile.h.stop]


def cut_queries(x: Tensor, tile: Tile) -> Tensor:
    return x[tile.b.start : tile.b.stop, tile.h.start : tile.h.stop, tile.i.start : tile.i.stop]


def cut_keys(x: Tensor, tile: Tile) -> Tensor:
    return x[tile.b.start : tile.b.stop, tile.h.start : tile.h.stop, tile.j.start : tile.j.stop]
