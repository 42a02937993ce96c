"""A look, what was given block by block added up: for each key, and for each cell of the map.

One program makes each sum, in an order of its own: the same call gives the same bits.
"""

import triton
import triton.language as tl


@triton.jit
def add_up_keys(given, wide, received, part, size, LINES: tl.constexpr, KEYS: tl.constexpr):
    """What all blocks of a head gave to `KEYS` keys, added to what these have received."""
    blocks = tl.cdiv(size.m, KEYS)
    head = tl.program_id(0) // blocks
    j = tl.program_id(0) % blocks * KEYS + tl.arange(0, KEYS)[None, :]
    line = tl.arange(0, LINES)[:, None]
    total = tl.zeros([LINES, KEYS], tl.float32)
    for at in range(0, part.blocks, LINES):
        spot = (head * part.blocks + at + line).to(tl.int64) * wide + j
        total += tl.load(given + spot, mask=(at + line < part.blocks) & (j < size.m), other=0.0)
    j = tl.program_id(0) % blocks * KEYS + tl.arange(0, KEYS)
    spot = received + (part.head + head).to(tl.int64) * size.m + j
    tl.store(spot, tl.load(spot, mask=j < size.m) + tl.sum(total, 0), mask=j < size.m)


@triton.jit
def add_up_cells(given, wide, cells, lines, columns, across, part, CELLS: tl.constexpr, SPAN: tl.constexpr):
    """One line of the map: sums over its blocks and over `across` keys."""
    own = tl.program_id(0)
    here = part.blocks // part.pieces
    head, line = part.head + own // here, part.block // part.pieces + own % here
    column, x = tl.arange(0, CELLS)[:, None], tl.arange(0, SPAN)[None, :]
    for first in range(0, columns, CELLS):
        total = tl.zeros([CELLS, SPAN], tl.float32)
        for piece in range(part.pieces):
            for at in range(0, across, SPAN):
                spot = (own * part.pieces + piece).to(tl.int64) * wide + (first + column) * across + at + x
                total += tl.load(given + spot, mask=(first + column < columns) & (at + x < across), other=0.0)
        shown = first + tl.arange(0, CELLS)
        spot = (head.to(tl.int64) * lines + line) * columns + shown
        tl.store(cells + spot, tl.sum(total, 1), mask=shown < columns)
