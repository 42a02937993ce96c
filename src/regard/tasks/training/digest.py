"""Digests (hashes) of data, by which a resumed run knows that its data are the same."""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from regard.core import RegardError
from regard.data.subset import Subset

# what stands before a digest of the bytes of data; those of earlier versions are of its printed form, and have nothing
VERSION = "2:"


def digest_data(*parts: Any) -> str:
    """A hash of data: texts, numbers, tensors, arrays, and sequences and mappings of them, by their bytes.

    >>> digest_data([1, 2], "a") == digest_data((1, 2), "a"), digest_data([1, 2]) == digest_data([2, 1])
    (True, False)

    What is made lazily is asked for item by item, and not kept.
    """
    digest = hashlib.sha256()
    for part in parts:
        _feed(digest, part)
    return VERSION + digest.hexdigest()[:32]


def digest_again(before: str, *parts: Any) -> str:
    """A hash of data in the format of one that a run has saved, to compare them."""
    return digest_data(*parts) if before.startswith(VERSION) else _digest_print(parts)


def _digest_print(parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _feed(digest: Any, value: Any) -> None:
    """Hash a value: its kind, its length and its bytes, so that no two values give the same bytes."""
    if isinstance(value, bool) or value is None:
        _add(digest, "constant", repr(value).encode())
    elif isinstance(value, int):
        _add(digest, "int", str(value).encode())
    elif isinstance(value, float):
        _add(digest, "float", struct.pack("<d", value))
    elif isinstance(value, str):
        _add(digest, "str", value.encode(errors="surrogatepass"))
    elif isinstance(value, bytes | bytearray | memoryview):
        _add(digest, "bytes", bytes(value))
    elif is_dataclass(value):
        _add(digest, "fields", type(value).__name__.encode())
        _feed(digest, [getattr(value, one.name) for one in fields(value)])
    elif isinstance(value, Mapping):
        _add(digest, "mapping", str(len(value)).encode())
        for key in sorted(value, key=repr):
            _feed(digest, (key, value[key]))
    elif isinstance(value, Subset) and value.is_whole:
        _feed(digest, ["whole", value.source, value.numbers])
    elif isinstance(value, Sequence):
        _feed_sequence(digest, value)
    else:
        _feed_array(digest, value)


def _feed_sequence(digest: Any, values: Sequence[Any]) -> None:
    if isinstance(values, list | tuple) and set(map(type, values)) == {int}:
        try:
            # tokens, mostly: at once
            return _add(digest, "ints", array("q", values).tobytes())
        except OverflowError:
            pass
    _add(digest, "sequence", str(len(values)).encode())
    for value in values:
        _feed(digest, value)


def _feed_array(digest: Any, value: Any) -> None:
    import numpy
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            value = value.to_sparse_coo().coalesce()
            return _feed(digest, ["sparse", list(value.shape), value.indices(), value.values()])
        kept = value.detach().cpu().contiguous()
        _add(digest, "array", f"{value.dtype} {list(value.shape)}".encode())
        return _add(digest, "numbers", kept.flatten().view(torch.uint8).numpy().tobytes() if kept.numel() else b"")
    if hasattr(value, "__array__"):
        # a picture of PIL, or an array
        found = numpy.asarray(value)
        if not found.dtype.hasobject:
            _add(digest, "array", f"{found.dtype.str} {list(found.shape)}".encode())
            return _add(digest, "numbers", numpy.ascontiguousarray(found).tobytes())
    raise RegardError(
        f"data has a {type(value).__name__}, of which there is no digest: give texts, numbers, tensors or arrays."
    )


def _add(digest: Any, kind: str, content: bytes) -> None:
    digest.update(f"{kind} {len(content)}:".encode())
    digest.update(content)


def digest_texts(examples: Iterable[Any]) -> str:
    """A hash of the texts of examples, which stand first in each, as text or as words; white space does not count.

    >>> digest_texts([("a cat sat", "x")]) == digest_texts([(("a", "cat", "sat"), ("DET", "NOUN", "VERB"))])
    True
    """
    digest = hashlib.sha256()
    for example in examples:
        digest.update("".join("".join(example[0]).split()).encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()[:16]
