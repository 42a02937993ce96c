"""Masks as the kernels take them: intervals, lengths, documents, grids, and bits for all others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional

from regard.core import Mask, Sizes, Tile
from regard.core.masks import And
from regard.mask import Causal, Document, Full, Grid, Lengths, Window
from regard.mask.document import find_reach

# no index comes near it, and sums of two stay within 32 bits
FAR = 2**29
# pairs of a mask packed at a time
_PAIRS = 2**24


@dataclass
class Marks:
    """A mask taken apart, no tensor touched yet. `rest` is what has no fragment, to be packed into bits."""

    before: int | None = None
    after: int | None = None
    grid: tuple[int, int, int] | None = None
    placed: Causal | Window | None = None
    lengths: Lengths | None = None
    document: Document | None = None
    rest: list[Mask] = field(default_factory=list)

    @property
    def bits(self) -> Mask | None:
        return reduce(And, self.rest) if self.rest else None

    def list_tensors(self, sizes: Sizes) -> dict[str, Tensor]:
        """What the kernels read, by the names that they know it by."""
        tensors = {}
        if self.placed is not None:
            assert isinstance(self.placed.offset, Tensor)
            tensors["places"] = self.placed.offset.flatten().clamp(-FAR, FAR).to(torch.int32)
        if self.lengths is not None:
            lengths = self.lengths.lengths.flatten(1).to(torch.int32)
            tensors["lengths" if lengths.shape[1] == 1 else "row_lengths"] = lengths
        if self.document is not None:
            tensors |= _list_ends(self.document)
        if self.bits is not None:
            tensors["bits"] = pack(self.bits, sizes)
        return tensors


def take_apart(mask: Mask) -> Marks:
    """Each part of a conjunction in its slot; what finds its slot taken goes with the rest."""
    marks = Marks()
    for part in _list_parts(mask):
        if type(part) is Full:
            continue
        # a class that inherits may mean another thing
        if type(part) is Causal or type(part) is Window:
            taken = _take_diagonal(marks, part)
        elif type(part) is Lengths and marks.lengths is None:
            marks.lengths, taken = part, True
        elif type(part) is Document and marks.document is None:
            marks.document, taken = part, True
        elif type(part) is Grid and marks.grid is None:
            rows, columns = (part.radius, part.radius) if isinstance(part.radius, int) else part.radius
            marks.grid, taken = (part.width, min(rows, part.height), min(columns, part.width)), True
        else:
            taken = False
        if not taken:
            marks.rest.append(part)
    return marks


def _list_parts(mask: Mask) -> list[Mask]:
    if isinstance(mask, And):
        return _list_parts(mask.one) + _list_parts(mask.other)
    return [mask]


def _take_diagonal(marks: Marks, part: Causal | Window) -> bool:
    before, after = (part.before, part.after) if isinstance(part, Window) else (None, 0)
    place = part.offset
    assert place is not None, "settled"
    if isinstance(place, Tensor):
        if marks.after is not None:
            return False
        marks.placed = part
        marks.before, marks.after = None if before is None else min(before, FAR), min(after, FAR)
        return True
    if marks.placed is not None:
        return False
    # several intervals around the same diagonal make one
    ahead = [after + place, *([] if marks.after is None else [marks.after])]
    back = [x for x in (None if before is None else before - place, marks.before) if x is not None]
    marks.after = _near(min(ahead))
    marks.before = _near(min(back)) if back else None
    return True


def _near(number: int) -> int:
    return max(-FAR, min(number, FAR))


def _list_ends(part: Document) -> dict[str, Tensor]:
    assert part.query_segments is not None, "settled"
    mine, theirs = part.query_segments.long().contiguous(), part.segments.long().contiguous()
    first, last = (x.to(torch.int32) for x in find_reach(theirs, mine))
    top, bottom = (x.to(torch.int32) for x in find_reach(mine, theirs))
    return {"query_ids": mine, "key_ids": theirs, "first": first, "last": last, "top": top, "bottom": bottom}


def count_bytes(mask: Mask | None, sizes: Sizes) -> int:
    """What the bits of a mask will take."""
    if mask is None:
        return 0
    b, h = _list_axes(mask, sizes)
    return b * h * sizes.n * -(-sizes.m // 32) * 4


def _list_axes(mask: Mask, sizes: Sizes) -> tuple[int, int]:
    """How many sequences and heads the mask tells apart."""
    s = sizes
    probe = Tile(range(min(s.b, 2)), range(min(s.h, 2)), range(min(s.n, 2)), range(min(s.m, 2)), s.device)
    shape = tuple(mask(*probe.index()).shape)
    shape = (1,) * (4 - len(shape)) + shape
    return (s.b if shape[0] > 1 else 1), (s.h if shape[1] > 1 else 1)


def pack(mask: Mask, sizes: Sizes) -> Tensor:
    """Any mask as (1 or b, 1 or h, n, words) int32, 32 keys a word, the first in the lowest bit."""
    b, h = _list_axes(mask, sizes)
    n, m = sizes.n, sizes.m
    if torch.compiler.is_compiling():
        # in one expression, which a compiler fuses; ranges of tiles would make a graph for each size
        views = ((b, (-1, 1, 1, 1)), (h, (-1, 1, 1)), (n, (-1, 1)), (m, (-1,)))
        index = [torch.arange(count, device=sizes.device).view(view) for count, view in views]
        return _pack(mask(*index).expand(b, h, n, m))
    bits = torch.empty(b, h, n, -(-m // 32), dtype=torch.int32, device=sizes.device)
    step = max(1, _PAIRS // max(1, b * h * m))
    for start in range(0, n, step):
        tile = Tile(range(b), range(h), range(start, min(start + step, n)), range(m), sizes.device)
        bits[:, :, start : tile.i.stop] = _pack(mask.tile(tile).expand(tile.shape))
    return bits


def _pack(allowed: Tensor) -> Tensor:
    words = -(-allowed.shape[-1] // 32)
    allowed = functional.pad(allowed, (0, words * 32 - allowed.shape[-1]))
    # the highest bit is the sign: added as it is, sums wrap around to the same 32 bits
    values = torch.ones(32, dtype=torch.int64, device=allowed.device) << torch.arange(32, device=allowed.device)
    packed = (allowed.unflatten(-1, (words, 32)) * values).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
