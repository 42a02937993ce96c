"""What attention is drawn on in a page: an image in patches, or a graph."""

from __future__ import annotations

import base64
import math
import os
import pathlib
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.page.blobs import Array
from regard.views.page.payload import Payload
from regard.views.pairs import read_pairs
from regard.views.pixels import read_pixels
from regard.views.reading import to_numbers

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def read_image(image: Any, grid: tuple[int, int] | None, skip: int, counts: Sequence[int]) -> dict[str, Any]:
    """The image as the page's data has it: a PNG file, or an array of pixels.

    >>> read_image(np.zeros((4, 6, 3), np.uint8), (2, 3), 1, [7])["grid"]
    [2, 3]
    """
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        raise RegardError(f"page skip must be a whole number, 0 or more, got {skip!r}.")
    side = math.isqrt(max(max(counts) - skip, 0))
    rows, columns = _read_grid(grid) if grid is not None else (side, side)
    if rows * columns + skip not in counts:
        raise RegardError(
            f"page grid {rows} by {columns} and skip {skip} make {rows * columns + skip} tokens, the heads have"
            f" {max(counts)}: give grid=(rows, columns)."
        )
    if isinstance(image, str | os.PathLike):
        raw = _read_file(pathlib.Path(image))
        if not raw.startswith(SIGNATURE) or len(raw) < 24:
            raise RegardError(
                f"page image {pathlib.Path(image).name[:80]!r} is not a PNG file: convert it, or give an array."
            )
        width, height = struct.unpack(">II", raw[16:24])
    else:
        pixels = (read_pixels(image, "page image") * 255).round().astype(np.uint8)
        (height, width), raw = pixels.shape[:2], write_png(pixels)
    url = "data:image/png;base64," + base64.b64encode(raw).decode()
    return {"width": width, "height": height, "png": url, "grid": [rows, columns], "skip": skip}


def write_png(pixels: Array) -> bytes:
    """Encode pixels as PNG: bytes (rows, columns, channels).

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
    """The edges of a graph with the weight that their end gives to their start, for every head that sees all nodes.

    A weight that is not known is NaN, and the page's note says so.
    """
    given = graph if isinstance(graph, Mapping) else {"edges": graph}
    if "edges" not in given:
        raise RegardError(
            f"page graph must be edges, or a mapping with 'edges', got keys {sorted(map(str, given))}."[:200]
        )
    edges = read_pairs(given["edges"], "page graph edges")
    nodes = given.get("nodes", sides[0]["labels"])
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        raise RegardError(f"page graph nodes must be a list of names, got {type(nodes).__name__}.")
    nodes = [str(node) for node in nodes]
    if edges.size and edges.max() >= len(nodes):
        raise RegardError(f"page graph edges name node {edges.max()}, but there are {len(nodes)}: give labels for all.")
    weights, unknown = {}, np.zeros(len(edges), dtype=bool)
    for head, entry in zip(payload.heads, payload.entries, strict=True):
        if head.n == head.m == len(nodes):
            values = weigh_edges(head.look, edges)
            unknown |= np.isnan(values) & ~np.isnan(head.look.peak.numpy()[edges[:, 1]])
            weights[str(entry["id"])] = payload.blobs.add_numbers(values)
    if not weights:
        raise RegardError(
            f"page graph has {len(nodes)} nodes, but no head has as many queries and keys: give its nodes."
        )
    if unknown.any():
        payload.told.say("edges", unknown=int(unknown.sum()))
        payload.note = payload.told.join()
    shown: dict[str, Any] = {"nodes": nodes, "edges": edges.tolist(), "weights": weights}
    if given.get("at") is not None:
        try:
            at = to_numbers(given["at"])
        except (TypeError, ValueError, RuntimeError):
            raise RegardError("page graph at must be numbers, two for each node.") from None
        if at.shape != (len(nodes), 2) or not np.isfinite(at).all():
            raise RegardError(
                f"page graph at must be a finite place (x, y) for each of the {len(nodes)} nodes, got shape {at.shape}."
            )
        shown["at"] = at.tolist()
    return shown


def weigh_edges(look: Look, edges: Array) -> Array:
    """The attention weight of query `to` for key `from`, for each edge; NaN where it is not known."""
    start, stop = torch.from_numpy(edges[:, 0]), torch.from_numpy(edges[:, 1])
    if look.block == (1, 1):
        return look.map[stop, start].numpy()
    if look.query is not None and look.key is not None and look.logsumexp is not None and look.spans is not None:
        scores = (look.query[stop].double() * look.key[start].double()).sum(-1) - look.logsumexp[stop].double()
        allowed = (start >= look.spans[stop, 0]) & (start < look.spans[stop, 1])
        return scores.exp().masked_fill(~allowed, 0.0).float().numpy()
    keys = look.top_keys[stop]
    hits = keys == start[:, None]
    values = (look.top_weights[stop] * hits).sum(-1)
    # a list that ends early, or has all keys, leaves nothing out
    whole = (keys < 0).any(-1) | (keys.shape[-1] == len(look.received))
    values = values.where(hits.any(-1) | whole, torch.nan)
    for row, query in enumerate(look.chosen.tolist()):
        values = torch.where(stop == query, look.rows[row, start].to(values), values)
    return values.float().numpy()


def _read_grid(grid: Any) -> tuple[int, int]:
    is_pair = isinstance(grid, tuple | list) and len(grid) == 2
    if not is_pair or not all(isinstance(x, int) and not isinstance(x, bool) and x > 0 for x in grid):
        raise RegardError(f"page grid must be (rows, columns), two whole numbers above 0, got {str(grid)[:40]}.")
    return grid[0], grid[1]


def _read_file(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    # ValueError: a name that no file can have
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RegardError(
            f"page image {path.name[:80]!r} cannot be read ({reason}): give a PNG file, or an array."
        ) from None
