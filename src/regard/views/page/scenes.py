"""What lies under the weights: a picture in patches, a graph."""

from __future__ import annotations

import base64
import math
import pathlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.page.blobs import Array
from regard.views.page.payload import Payload

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def read_image(image: Any, grid: tuple[int, int] | None, skip: int, counts: Sequence[int]) -> dict[str, Any]:
    """The picture as the page's data has it: a PNG file, or an array (rows, columns, 1, 3 or 4) or (3, rows, columns).

    >>> read_image(np.zeros((4, 6, 3), np.uint8), (2, 3), 1, [7])["grid"]
    [2, 3]
    """
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        raise RegardError(f"page skip must be a whole number, 0 or more, got {skip!r}.")
    side = math.isqrt(max(max(counts) - skip, 0))
    rows, columns = grid if grid is not None else (side, side)
    if rows * columns + skip not in counts:
        raise RegardError(
            f"page grid {rows} by {columns} and skip {skip} make {rows * columns + skip} tokens, the heads have"
            f" {max(counts)}: give grid=(rows, columns)."
        )
    if isinstance(image, str | pathlib.Path):
        raw = pathlib.Path(image).read_bytes()
        if not raw.startswith(SIGNATURE) or len(raw) < 24:
            raise RegardError(
                f"page image {pathlib.Path(image).name[:80]!r} is not a PNG file: convert it, or give an array."
            )
        width, height = struct.unpack(">II", raw[16:24])
    else:
        pixels = _read_pixels(image)
        (height, width), raw = pixels.shape[:2], write_png(pixels)
    url = "data:image/png;base64," + base64.b64encode(raw).decode()
    return {"width": width, "height": height, "png": url, "grid": [rows, columns], "skip": skip}


def write_png(pixels: Array) -> bytes:
    """A PNG file of bytes (rows, columns, channels).

    >>> write_png(np.zeros((1, 1, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width, channels = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * channels)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    body = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return SIGNATURE + b"".join(body)


def read_graph(graph: Any, payload: Payload, sides: list[dict[str, Any]]) -> dict[str, Any]:
    """Edges with the weight that their end gives to their start, for every head that sees all nodes."""
    given = graph if isinstance(graph, Mapping) else {"edges": graph}
    if "edges" not in given:
        raise RegardError(
            f"page graph must be edges, or a mapping with 'edges', got keys {sorted(map(str, given))}."[:200]
        )
    edges = np.asarray(given["edges"].cpu() if isinstance(given["edges"], torch.Tensor) else given["edges"])
    # two tensors' rows are from and to; a list of two pairs is pairs
    if edges.ndim == 2 and edges.shape[0] == 2 and (edges.shape[1] != 2 or isinstance(given["edges"], torch.Tensor)):
        edges = edges.T
    nodes = [str(node) for node in given.get("nodes", sides[0]["labels"])]
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise RegardError(f"page graph edges must be whole numbers, (2, count) from and to, got shape {edges.shape}.")
    if edges.size and not 0 <= edges.min() <= edges.max() < len(nodes):
        raise RegardError(f"page graph edges name node {edges.max()}, but there are {len(nodes)}: give labels for all.")
    weights = {}
    for head, entry in zip(payload.heads, payload.entries, strict=True):
        if head.n == head.m == len(nodes):
            weights[str(entry["id"])] = payload.blobs.add_numbers(weigh_edges(head.look, edges))
    if not weights:
        raise RegardError(
            f"page graph has {len(nodes)} nodes, but no head has as many queries and keys: give its nodes."
        )
    shown: dict[str, Any] = {"nodes": nodes, "edges": edges.tolist(), "weights": weights}
    if given.get("at") is not None:
        at = np.asarray(given["at"], dtype=float)
        if at.shape != (len(nodes), 2):
            raise RegardError(
                f"page graph at must be a place (x, y) for each of the {len(nodes)} nodes, got shape {at.shape}."
            )
        shown["at"] = at.tolist()
    return shown


def weigh_edges(look: Look, edges: Array) -> Array:
    """The weight of query `to` for key `from`: from the map where it has a cell for each pair, else as it is known."""
    start, stop = torch.from_numpy(edges[:, 0].astype(np.int64)), torch.from_numpy(edges[:, 1].astype(np.int64))
    if look.block == (1, 1):
        return look.map[stop, start].numpy()
    if look.query is not None and look.key is not None and look.stat is not None and look.spans is not None:
        scores = (look.query[stop].double() * look.key[start].double()).sum(-1) - look.stat[stop].double()
        allowed = (start >= look.spans[stop, 0]) & (start < look.spans[stop, 1])
        return scores.exp().masked_fill(~allowed, 0.0).float().numpy()
    hits = look.top_keys[stop] == start[:, None]
    return (look.top_weights[stop] * hits).sum(-1).float().numpy()


def _read_pixels(image: Any) -> Array:
    pixels = np.asarray(image.detach().cpu() if isinstance(image, torch.Tensor) else image)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4) and pixels.shape[0] in (1, 3, 4):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise RegardError(f"page image must be (rows, columns, 1, 3 or 4) or (3, rows, columns), got {pixels.shape}.")
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind != "f" or not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1):
        raise RegardError("page image must be bytes (uint8), or numbers from 0 to 1: undo the model's normalisation.")
    return (pixels * 255).round().astype(np.uint8)
