"""Arrays that are embedded in a page: in small dtypes, deflated, as base64."""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# above this a half-precision number is infinite
LARGEST_HALF = 65504.0
NAMES = {"u1": "u8", "u2": "u16", "i4": "i32", "f2": "f16", "f4": "f32"}


@dataclass
class Blobs:
    """The arrays of one page, each stored once.

    >>> blobs = Blobs()
    >>> blobs.add(np.zeros((2, 3), np.float32)), blobs.add(np.zeros((2, 3), np.float32)), blobs.entries
    (0, 0, [{'dtype': 'f32', 'shape': [2, 3], 'store': 0}])
    """

    entries: list[dict[str, Any]] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many characters they take in the page."""
        return sum(map(len, self.stores))

    def add(self, array: Array, scale: float | None = None) -> int:
        """Add an array; its number. With a scale, what is meant is the numbers times the scale."""
        array = np.ascontiguousarray(array)
        kind = array.dtype.newbyteorder("<")
        raw = array.astype(kind, copy=False).tobytes()
        mark = (kind.str, array.shape, scale, hashlib.sha256(raw).digest())
        if mark in self._known:
            return self._known[mark]
        self._known[mark] = len(self.entries)
        entry: dict[str, Any] = {"dtype": NAMES[array.dtype.str[1:]], "shape": list(array.shape)}
        if scale is not None:
            entry["scale"] = float(scale)
        self.entries.append({**entry, "store": len(self.stores)})
        self.stores.append(encode(raw))
        return self._known[mark]

    def add_together(self, arrays: list[Array], scales: list[float], power: float) -> list[int]:
        """Add many small arrays of bytes in one store; what is meant is (number × scale) to the power."""
        first, at = len(self.entries), 0
        for array, scale in zip(arrays, scales, strict=True):
            about = {"dtype": "u8", "shape": list(array.shape), "scale": scale, "power": power}
            self.entries.append({**about, "store": len(self.stores), "offset": at})
            at += array.size
        self.stores.append(encode(b"".join(array.tobytes() for array in arrays)))
        return list(range(first, len(self.entries)))

    def add_numbers(self, array: Array) -> int:
        """Add an array in half precision, or in single where half would overflow."""
        sizes = np.abs(array[np.isfinite(array)])
        small = sizes.size == 0 or float(sizes.max()) <= LARGEST_HALF
        return self.add(array.astype(np.float16 if small else np.float32))


def encode(raw: bytes) -> str:
    """Base64 of a raw deflate stream, which browsers decode by themselves.

    >>> zlib.decompress(base64.b64decode(encode(b"aaaa")), wbits=-15)
    b'aaaa'
    """
    press = zlib.compressobj(6, zlib.DEFLATED, -15)
    return base64.b64encode(press.compress(raw) + press.flush()).decode()
