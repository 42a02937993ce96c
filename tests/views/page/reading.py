"""A page's data and arrays, read as the page itself reads them."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np

KINDS = {"u8": "<u1", "u16": "<u2", "i32": "<i4", "f16": "<f2", "f32": "<f4"}


class Read:
    """What the script of a page would know."""

    def __init__(self, text: str) -> None:
        self.data = json.loads(re.search(r'id="regard-data">(.*?)</script>', text, re.S)[1])
        self.entries = self.data["entries"]
        self.stores = re.findall(r'id="regard-blob-\d+">(.*?)</script>', text)

    def blob(self, index: int) -> np.ndarray:
        about = self.data["blobs"][index]
        raw = zlib.decompress(base64.b64decode(self.stores[about["store"]]), wbits=-15)
        count = int(np.prod(about["shape"]))
        array = np.frombuffer(raw, KINDS[about["dtype"]], count, about.get("offset", 0)).reshape(about["shape"])
        if about["dtype"] == "i32":
            return array
        return (array.astype(np.float64) * about.get("scale", 1)) ** about.get("power", 1)

    def get(self, entry: int, name: str) -> np.ndarray:
        return self.blob(self.entries[entry]["blobs"][name])

    def rows(self, entry: int) -> np.ndarray:
        """All weights of a head from its query and key."""
        query, key, stat, spans = (self.get(entry, name) for name in ("query", "key", "stat", "spans"))
        at = np.arange(len(key))
        allowed = (at >= spans[:, :1]) & (at < spans[:, 1:])
        with np.errstate(over="ignore"):
            return np.where(allowed, np.exp(query @ key.T - stat[:, None]), 0)

    def about(self, **wanted: Any) -> list[dict[str, Any]]:
        """Entries with these values."""
        return [entry for entry in self.entries if all(entry[name] == value for name, value in wanted.items())]
