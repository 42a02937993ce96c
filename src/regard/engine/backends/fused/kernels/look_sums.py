"""A look, what was given block by block added up: for each key, and for each cell of the map.

One program makes each sum, in an order of its own: the same call gives the same bits.
"""

import triton
import triton.language as tl


@triton.jit
def add_up_keys(given, wide, received, part, pieces, had, size, LINES: tl.constexpr, KEYS: tl.constexpr):
    """What all pieces of a head's blocks gave to `KEYS` keys, added to what the first `had` keys have received."""
    blocks = tl.cdiv(size.m, KEYS)
    head = tl.program_id(0) // blocks
    j = tl.program_id(0) % blocks * KEYS + tl.arange(0, KEYS)[None, :]
    line = tl.arange(0, LINES)[:, None]
    total = tl.zeros([LINES, KEYS], tl.float32)
    for at in range(0, pieces, LINES):
        spot = (head * pieces + at + line).to(tl.int64) * wide + j
        total += tl.load(given + spot, mask=(at + line < pieces) & (j < size.m), other=0.0)
    j = tl.program_id(0) % blocks * KEYS + tl.arange(0, KEYS)
    spot = received + (part.head + head).to(tl.int64) * size.m + j
    before = tl.load(spot, mask=j < had, other=0.0)
    tl.store(spot, before + tl.sum(total, 0), mask=j < size.m)


@triton.jit
def add_up_cells(
    given, wide, cells, start, here, lines, columns, across, part, pieces, CELLS: tl.constexpr, SPAN: tl.constexpr
):
    """One of the lines of the map that are `here`: sums over its pieces and over `across` keys."""
    own, line = tl.program_id(0) // here, tl.program_id(0) % here
    first_piece = own * pieces + line * part.pieces
    head = part.head + own
    column, x = tl.arange(0, CELLS)[:, None], tl.arange(0, SPAN)[None, :]
    for first in range(0, columns, CELLS):
        total = tl.zeros([CELLS, SPAN], tl.float32)
        for piece in range(part.pieces):
            for at in range(0, across, SPAN):
                spot = (first_piece + piece).to(tl.int64) * wide + (first + column) * across + at + x
                total += tl.load(given + spot, mask=(first + column < columns) & (at + x < across), other=0.0)
        shown = first + tl.arange(0, CELLS)
        spot = (head.to(tl.int64) * lines + start + line) * columns + shown
        tl.store(cells + spot, tl.sum(total, 1), mask=shown < columns)
