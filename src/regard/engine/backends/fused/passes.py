"""Forward and backward passes of a kind: which memory they make and which kernels they start, found once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.engine.backends.fused.shapes import divide_up
from regard.engine.backends.fused.start import Spot, Starter, find_stream, is_compiled, is_told, start_all
from regard.engine.backends.fused.terms import stride_rows
from regard.engine.backends.fused.tune import is_asked

# a part of a room begins at a multiple of so many numbers
_ALIGNED = 16


class Room(NamedTuple):
    """Memory that a pass makes; filled with zeros where sums begin in it."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    strides: tuple[int, ...] | None = None
    is_zero: bool = False
    # which of the tensors handed in it is like: that takes half the time
    like: int | None = None

    def make(self, given: Sequence[Tensor]) -> Tensor:
        if self.like is not None:
            return torch.empty_like(given[self.like])
        device = given[0].device
        if self.is_zero:
            return torch.zeros(self.shape, dtype=self.dtype, device=device)
        if self.strides is None:
            return torch.empty(self.shape, dtype=self.dtype, device=device)
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)


def make_room(held: dict[str, Tensor], name: str, width: int, dtype: torch.dtype) -> Room:
    """Room for as many rows of some width as those of a name, lying as they do."""
    rows = held[name]
    shape, strides = stride_rows(rows, width)
    is_like = rows.shape == shape and rows.stride() == strides and rows.dtype == dtype
    return Room(shape, dtype, strides, like=list(held).index(name) if is_like else None)


class Part(NamedTuple):
    """A tensor within a room."""

    room: str
    start: int
    shape: tuple[int, ...]
    # as wide as those of the room
    dtype: torch.dtype = torch.float32

    def find(self, whole: Tensor) -> Tensor:
        part = whole[self.start : self.start + math.prod(self.shape)].view(self.shape)
        return part if part.dtype == self.dtype else part.view(self.dtype)


def share(
    room: str, shapes: dict[str, tuple[int, ...]], *, is_zero: bool = True
) -> tuple[dict[str, Room], dict[str, Part]]:
    """One room for tensors of several shapes, each beginning at an aligned place."""
    parts, at = {}, 0
    for name, shape in shapes.items():
        parts[name] = Part(room, at, shape)
        at += divide_up(math.prod(shape), _ALIGNED) * _ALIGNED
    return {room: Room((at,), is_zero=is_zero)}, parts


# the kernels of a pass in their order, from the places of its tensors
List = Callable[[dict[str, Spot], Sequence[Tensor | int]], Iterable[Starter]]


class Pass:
    """What runs from the tensors of a call to those that are made of them."""

    def __init__(
        self, device: torch.device, names: Sequence[str], rooms: dict[str, Room], parts: dict[str, Part],
        list_starters: List,
    ) -> None:  # fmt: skip
        """`names` are those of the tensors that a call hands in."""
        self.device, self.names, self.parts = device, names, parts
        self.rooms, self._list = list(rooms.values()), list_starters
        # numbers come last
        self.places = {name: at for at, name in enumerate([*names, *rooms])}
        # places in bytes, from those of their rooms
        self.offsets = [(self.places[part.room], 4 * part.start) for part in parts.values()]
        self.starters: list[Starter] | None = None

    def run(self, given: Sequence[Tensor], numbers: Sequence[int] = ()) -> list[Tensor]:
        """Everything that it made, in the order of its rooms."""
        device = self.device
        if device.type == "cuda" and device.index != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                return self.run(given, numbers)
        made = [room.make(given) for room in self.rooms]
        if self.starters is None or is_told():
            self._begin([*given, *made], numbers)
            return made
        at = [x.data_ptr() for x in given]
        at += [x.data_ptr() for x in made]
        for place, offset in self.offsets:
            at.append(at[place] + offset)
        at += numbers
        stream = find_stream()
        for starter in self.starters:
            starter.start(at, stream)
        return made

    def _begin(self, tensors: list[Tensor], numbers: Sequence[int]) -> None:
        """Start the kernels one by one, after they are compiled."""
        held = tensors + [part.find(tensors[self.places[part.room]]) for part in self.parts.values()]
        spots = {name: Spot(at, x) for at, (name, x) in enumerate(zip([*self.places, *self.parts], held, strict=True))}
        everything: list[Tensor | int] = [*held, *numbers]
        for at, name in enumerate(("seed", "draw_seed"), len(held)):
            spots[name] = Spot(at, everything[at]) if at < len(everything) else Spot(at, 0)
        starters: list[Starter] = []
        for starter in self._list(spots, everything):
            starters.append(starter)
            if is_asked():
                # the next kernel is measured on what this one makes
                start_all([starter], everything)
        if is_asked():
            # sums begin anew: kernels were measured on them
            for at, room in enumerate(self.rooms, len(self.names)):
                if room.is_zero:
                    tensors[at].zero_()
        start_all(starters, everything)
        if all(is_compiled(starter.kernel) for starter in starters):
            self.starters = starters
            # they know their places: no tensor of this call is kept with them
            for spot in spots.values():
                spot.held = None

    def find(self, name: str, made: Sequence[Tensor]) -> Tensor:
        """A part of what was made."""
        part = self.parts[name]
        return part.find(made[self.places[part.room] - len(self.names)])
