"""How large the blocks of a kernel are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.engine.backends.fused.recipe import Recipe


@dataclass(frozen=True)
class Shape:
    """Queries and keys in a tile, warps to work on it, and tiles loaded ahead."""

    rows: int
    keys: int
    warps: int = 4
    stages: int = 2

    @property
    def options(self) -> dict[str, Any]:
        return {"num_warps": self.warps, "num_stages": self.stages}


def choose(kernel: str, recipe: Recipe, is_half: bool, width: int) -> Shape:
    """The shape for a kernel ("forward", "solve", "queries", "keys", "bias"); `width` is the larger of d and e."""
    if not recipe.is_dot:
        return _FEATURES[kernel] if width <= 128 else Shape(32, 32)
    if not is_half:
        return Shape(32, 32) if width <= 128 else Shape(16, 16)
    if width <= 64:
        return _NARROW[kernel]
    if width <= 128:
        return _MIDDLE[kernel]
    return Shape(64, 32, 8, 1) if width <= 256 else Shape(32, 32, 8, 1)


_NARROW = {
    "forward": Shape(128, 64, 4, 3),
    "solve": Shape(128, 64, 4, 3),
    "queries": Shape(128, 64, 4, 3),
    "keys": Shape(64, 128, 4, 3),
    "bias": Shape(64, 64, 4, 2),
}
_MIDDLE = {
    "forward": Shape(128, 64, 8, 3),
    "solve": Shape(128, 64, 8, 2),
    "queries": Shape(64, 64, 4, 2),
    "keys": Shape(64, 64, 4, 2),
    "bias": Shape(64, 64, 4, 1),
}
# features lie along threads: one query (key) each, with the other side of the tile in its registers
_FEATURES = {
    "forward": Shape(128, 64),
    "solve": Shape(128, 64),
    "queries": Shape(128, 32),
    "keys": Shape(32, 128),
    "bias": Shape(32, 64),
}
