"""The sizes of a call, and tiles of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

# no sequence is nearly as long, and sums of a place and a position stay within 64 bits
FAR = 2**62


def misfit_offset(name: str, offset: int | None) -> str | None:
    """The error message if an offset is out of range, else None."""
    # a compiler's number is not one yet
    is_near = offset is None or torch.compiler.is_compiling() or -FAR <= offset <= FAR
    return None if is_near else f"{name} offset must lie within -2**62 and 2**62, got {offset}."


@dataclass(frozen=True)
class Sizes:
    """The sizes of one call, leading axes folded into `b`.

    >>> sizes = Sizes(lead=(2, 3), h=8, g=4, n=5, m=7, d=16, c=16, e=32)
    >>> sizes.b, sizes.whole().shape
    (6, (6, 8, 5, 7))

    `d` is the query's width and `c` the key's; they differ only where the score allows it. `has_heads` is False for
    2-D and 3-D inputs, whose `h` and `g` are one.
    """

    lead: tuple[int, ...]
    h: int
    g: int
    n: int
    m: int
    d: int
    c: int
    e: int
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")
    has_heads: bool = True

    @property
    def b(self) -> int:
        return math.prod(self.lead)

    @property
    def pairs(self) -> tuple[int, ...]:
        """The shape of the scores as the caller sees it: leading axes, heads where there are any, queries, keys."""
        return (*self.lead, *((self.h,) if self.has_heads else ()), self.n, self.m)

    def takes(self, tensor: Tensor) -> bool:
        """Whether the tensor broadcasts to `pairs`."""
        shape, pairs = tensor.shape, self.pairs
        if len(shape) > len(pairs):
            return False
        return all(s in (1, p) for s, p in zip(reversed(shape), reversed(pairs), strict=False))

    def fold(self, tensor: Tensor) -> Tensor:
        """A tensor that broadcasts to `pairs` as a 4-D one that broadcasts to (b, h, n, m); a view where it can be."""
        tensor = tensor.reshape(*(1,) * (len(self.pairs) - tensor.ndim), *tensor.shape)
        if not self.has_heads:
            tensor = tensor.unsqueeze(-3)
        lead, rest = tensor.shape[:-3], tensor.shape[-3:]
        if all(size == 1 for size in lead):
            return tensor.reshape(1, *rest)
        return tensor.expand(*self.lead, *rest).reshape(self.b, *rest)

    def whole(self) -> Tile:
        return Tile(range(self.b), range(self.h), range(self.n), range(self.m), self.device)


@dataclass(frozen=True)
class Tile:
    """A box of (sequence, head, query, key) indices: four ranges, and the device its index tensors live on.

    >>> tile = Tile(range(1), range(2), range(4, 6), range(3))
    >>> tile.shape
    (1, 2, 2, 3)
    >>> tile.index()[2].flatten()
    tensor([4, 5])
    """

    b: range
    h: range
    i: range
    j: range
    device: torch.device = torch.device("cpu")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.b), len(self.h), len(self.i), len(self.j)

    def index(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Index tensors b, h, i, j that broadcast against one another to `shape`."""
        ranges = (self.b, self.h, self.i, self.j)
        views = ((-1, 1, 1, 1), (-1, 1, 1), (-1, 1), (-1,))
        b, h, i, j = (
            torch.arange(r.start, r.stop, device=self.device).view(v) for r, v in zip(ranges, views, strict=True)
        )
        return b, h, i, j

    def keys(self, j: range) -> Tile:
        """The same queries with other keys."""
        return replace(self, j=j)

    def slice(self, tensor: Tensor) -> Tensor:
        """The part of a 4-D tensor that belongs to this tile; an axis of one stays whole."""
        for axis, part in enumerate((self.b, self.h, self.i, self.j)):
            size = tensor.shape[axis]
            if size != 1 and len(part) != size:
                tensor = tensor.narrow(axis, part.start, len(part))
        return tensor


@dataclass(frozen=True, eq=False)
class Neighbours(Tile):
    """Chosen keys of chosen queries in place of a box: the first axis is sequences and queries together.

    >>> places = Neighbours(range(1), range(2), range(9), range(9), rows=torch.tensor([3, 8]), ends=torch.ones(2, 4))
    >>> places.shape
    (2, 2, 1, 4)

    `rows` are the queries (r,), and `ends` the keys of each (r, w).
    """

    rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    ends: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.b) * len(self.rows), len(self.h), 1, self.ends.shape[1]

    def index(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        b, h = (torch.arange(r.start, r.stop, device=self.device) for r in (self.b, self.h))
        i, j = self.rows.repeat(len(b)), self.ends.repeat(len(b), 1)
        return (
            b.repeat_interleave(len(self.rows)).view(-1, 1, 1, 1),
            h.view(-1, 1, 1),
            i.view(-1, 1, 1, 1),
            j[:, None, None],
        )
