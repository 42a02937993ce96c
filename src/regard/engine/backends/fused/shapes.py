"""How large the blocks of a kernel are: measured on one device, and measured anew on others when asked to.

Which shape is best depends on the device, the kernel, the terms and the width. The table below holds what was found on
an H200; what `tune` finds elsewhere is kept in a file and comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from regard.engine.backends.fused.recipe import Recipe

# up to so many positions a side of a block is short; no side is shorter than the least
FEW, SHORT, LEAST = 64, 32, 16


@dataclass(frozen=True)
class Shape:
    """Queries and keys in a tile, warps to work on it, and tiles loaded ahead."""

    rows: int
    keys: int
    warps: int = 4
    stages: int = 1

    @property
    def constants(self) -> dict[str, Any]:
        """What a kernel is compiled for."""
        return {"ROWS": self.rows, "KEYS": self.keys, "num_warps": self.warps, "num_stages": self.stages}


def divide_up(count: int, size: int) -> int:
    """How many blocks of a size hold as many; as Triton's own, which takes longer to call than a small kernel to start.

    >>> divide_up(65, 32)
    3
    """
    return -(-count // size)


def round_up(count: int) -> int:
    """The least power of two that is not below.

    >>> round_up(33), round_up(32), round_up(1)
    (64, 32, 1)
    """
    return 1 << (count - 1).bit_length()


def fit(shape: Shape, n: int, m: int) -> Shape:
    """The shape for a call of n queries and m keys: few of them need no long block.

    There are two lengths of a block, so that a kernel is compiled for no more, however many lengths it meets.

    >>> fit(Shape(128, 64, 4, 3), 50, 1000)
    Shape(rows=32, keys=64, warps=4, stages=3)
    """
    rows, keys = (min(most, SHORT) if count <= FEW else most for most, count in ((shape.rows, n), (shape.keys, m)))
    return Shape(rows, keys, shape.warps, shape.stages)


def count_blocks(shape: Shape, kernel: str, heads: tuple[int, int], n: int, m: int) -> int:
    """How many programs share the work of a kernel; `heads` are those of all sequences, of queries and of keys.

    >>> count_blocks(Shape(128, 64), "forward", (8, 8), 1000, 1000)
    64
    """
    return heads[1] * divide_up(m, shape.keys) if kernel == "keys" else heads[0] * divide_up(n, shape.rows)


def choose_span(count: int) -> int:
    """How many of `count` blocks a program looks at that heals few.

    >>> choose_span(384), choose_span(6)
    (8, 2)
    """
    return min(count & -count, 8)


@lru_cache(1024)
def name_key(kernel: str, recipe: Recipe, is_half: bool, narrow: int, width: int) -> str:
    """What a measured shape holds for.

    >>> name_key("forward", Recipe("dot", "relu1", after=0), True, 16, 100)
    'forward dot relu1 masked half 32 128'
    """
    low, high = (next(w for w in (32, 64, 128, 256, 512) if size <= w) for size in (narrow, width))
    masked = "masked" if recipe.hides else "whole"
    added = f" {recipe.bias}" if recipe.bias else ""
    return f"{kernel} {recipe.score} {recipe.weigh} {masked}{added} {'half' if is_half else 'float'} {low} {high}"


@lru_cache(1024)
def choose(
    kernel: str, recipe: Recipe, is_half: bool, narrow: int, width: int, is_few: bool = False, is_roomy: bool = False
) -> Shape:
    """The shape of a kernel ("forward", "solve", "queries", "keys", "bias") for the smaller and larger of d and e.

    `is_few` asks for features in blocks so short that few of them occupy a device; one that `is_roomy` holds large
    tiles of wide rows.
    """
    if not recipe.is_dot:
        if (is_few and width <= 128) or (is_half and 128 < width <= 256):
            return _FEW_FEATURES[kernel]
        return _FEATURES[kernel] if width <= 128 else _WIDE_FEATURES[kernel]
    if narrow <= 32:
        # Triton 3.6 multiplies wrongly on Hopper where 64 rows meet a matrix of 16 columns; 32 rows take other units
        return Shape(32, 32)
    if not is_half:
        return _FLOAT[kernel] if width <= 64 else Shape(32, 32) if width <= 128 else Shape(16, 16)
    if width <= 64:
        if kernel in ("forward", "queries") and (recipe.hides or recipe.bias):
            # small blocks waste less of a mask's edge, and of a narrow band
            return Shape(64, 64, 4, 3)
        if kernel == "keys" and not recipe.takes_means:
            return Shape(32, 128, 4, 3)
        return _UP_TO_64[kernel]
    if width <= 128:
        return Shape(32, 64, 4, 3) if kernel == "keys" and recipe.cap is not None else _UP_TO_128[kernel]
    is_plain = recipe.weigh == "softmax" and not (recipe.bias or recipe.dropout)
    if width <= 256 and is_roomy and is_plain and kernel in _ROOMY:
        return _ROOMY[kernel]
    return Shape(64, 32, 8, 1) if width <= 256 else Shape(32, 32, 8, 1)


# tiles of rows to 256 wide, at most 192 KiB of them at a time
_ROOMY = {"forward": Shape(128, 64, 8, 2), "queries": Shape(128, 64, 8, 1), "keys": Shape(32, 64, 8, 2)}
_UP_TO_64 = {
    "forward": Shape(128, 64, 4, 3),
    "solve": Shape(64, 64, 4, 3),
    "queries": Shape(128, 64, 4, 3),
    "keys": Shape(64, 64, 4, 1),
    "bias": Shape(128, 64, 4, 1),
}
_UP_TO_128 = {
    "forward": Shape(64, 64, 4, 3),
    "solve": Shape(64, 64, 4, 2),
    "queries": Shape(128, 64, 8, 3),
    "keys": Shape(64, 64, 4, 1),
    "bias": Shape(64, 64, 4, 1),
}
_FLOAT = dict.fromkeys(_UP_TO_64, Shape(64, 64)) | {"bias": Shape(32, 32), "keys": Shape(32, 32)}
# features lie along threads: one query (key) each, with the other side of the tile in its registers
_FEATURES = {
    "forward": Shape(128, 32),
    "solve": Shape(128, 32),
    "queries": Shape(128, 64),
    "keys": Shape(64, 64, 2),
    "bias": Shape(32, 64),
}
# short blocks, whose warps share a position's sums
_FEW_FEATURES = {
    "forward": Shape(32, 64, 8),
    "solve": Shape(32, 64, 8),
    "queries": Shape(32, 64),
    "keys": Shape(64, 32, 8),
    "bias": Shape(16, 32),
}
_WIDE_FEATURES = {
    "forward": Shape(64, 16),
    "solve": Shape(64, 16),
    "queries": Shape(64, 16),
    "keys": Shape(16, 64),
    "bias": Shape(16, 32),
}
