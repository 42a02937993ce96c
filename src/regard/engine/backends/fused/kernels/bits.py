"""The random bits of `regard.core.bits`, in unsigned 32-bit arithmetic."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Noise(NamedTuple):
    """Dropout: which weights fall, and what the others grow by."""

    seed: Any = None
    dropout: Any = None
    grown: Any = None


@triton.jit
def mix(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def draw(seed, b, h, i, j, SALT: tl.constexpr):
    """A number in (0, 1) for each pair."""
    row = mix((b + seed).to(tl.uint32)) + h.to(tl.uint32)
    row = mix(mix(mix(row) + i.to(tl.uint32)) ^ SALT)
    bits = mix(row + mix(j.to(tl.uint32)))
    return ((bits >> 9).to(tl.float32) + 0.5) * (2.0**-23)


@triton.jit
def keep(noise, b, h, i, j):
    """What dropout multiplies each weight by."""
    return tl.where(draw(noise.seed, b, h, i, j, 0) >= noise.dropout, noise.grown, 0.0)
