"""Counter-based random numbers: from a seed and a position alone, the same on every backend, tile and device.

The mixer is the 32-bit finaliser `lowbias32` (https://nullprogram.com/blog/2018/07/31/), kept in int64 because torch
has no unsigned 32-bit multiplication.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.core.sizes import Tile

_LOW = 0xFFFFFFFF


def draw_seed(generator: torch.Generator | None) -> int:
    """A random seed from `generator`, or from torch's global one.

    >>> draw_seed(torch.Generator().manual_seed(3)) == draw_seed(torch.Generator().manual_seed(3))
    True
    """
    return int(draw_number(generator))


def draw_number(generator: torch.Generator | None) -> Tensor:
    """The same as a tensor, since its value cannot be read under torch.func."""
    device = generator.device if generator is not None else "cpu"
    return torch.randint(0, 2**31, (), generator=generator, device=device)


def mix(x: Tensor) -> Tensor:
    """A hash of 32-bit integers: a bijection whose output bits look independent of its input bits."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _LOW
    return x ^ (x >> 16)


def uniform(seed: int, tile: Tile, salt: int = 0) -> Tensor:
    """A uniform random number in (0, 1) for each pair of the tile: 23 random bits, never 0 or 1."""
    b, h, i, j = tile.index()
    row = mix(mix(mix(mix((b + seed) & _LOW) + h & _LOW) + i & _LOW) ^ salt)
    bits = mix((row + mix(j)) & _LOW)
    # 23 bits and a half are the most that float32 holds exactly: one more would round up to 1
    return ((bits >> 9).to(torch.float32) + 0.5) * 2.0**-23


def keep(seed: int, tile: Tile, dropout: float) -> Tensor:
    """The dropout mask of the tile: True where a weight is kept."""
    return uniform(seed, tile) >= dropout
