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
# sequences that are nothing but their items
PLAIN = (list, tuple, str, range)


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
    elif isinstance(value, bytes | bytearray):
        _add(digest, "bytes", value)
    elif is_dataclass(value) and not isinstance(value, type):
        _add(digest, "fields", type(value).__name__.encode())
        _feed(digest, [getattr(value, one.name) for one in fields(value)])
        if isinstance(value, Sequence):
            # fields may but name what it has, as files
            _feed_sequence(digest, value)
    elif isinstance(value, Mapping):
        _add(digest, "mapping", str(len(value)).encode())
        for key in sorted(value, key=repr):
            _feed(digest, (key, value[key]))
    elif isinstance(value, Subset) and value.is_whole:
        if isinstance(value.source, Sequence) and not (is_dataclass(value.source) or type(value.source) in PLAIN):
            # a graph is more than its nodes
            raise RegardError(
                f"data is parts of one {type(value.source).__name__}, of which there is no digest: make it a dataclass,"
                " whose fields say all of it."
            )
        _add(digest, "whole", b"")
        _feed(digest, [value.source, value.numbers])
    elif isinstance(value, Sequence) and not isinstance(value, memoryview):
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
        if value.is_quantized or value.is_nested or value.is_meta:
            raise _refuse("tensor that is quantized, nested or meta")
        if value.layout != torch.strided:
            value = value.detach().to_sparse_coo().coalesce()
            _add(digest, "sparse", str(list(value.shape)).encode())
            return _feed(digest, [value.indices(), value.values()])
        kept = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        _add(digest, "array", f"{value.dtype} {list(value.shape)}".encode())
        return _add(digest, "numbers", kept.flatten().view(torch.uint8).numpy() if kept.numel() else b"")
    if hasattr(value, "getpalette"):
        # a picture of PIL, whose numbers mean what these say
        shown = value.mode, value.getpalette(None), value.info.get("transparency")
        _add(digest, "picture", repr(shown).encode())
    if isinstance(value, numpy.ma.MaskedArray):
        _add(digest, "masked", b"")
        return _feed(digest, [value.data, numpy.ma.getmaskarray(value)])
    if isinstance(value, memoryview) or hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        found = numpy.asarray(value)
        if not found.dtype.hasobject:
            kind = str(found.dtype.descr) if found.dtype.names else found.dtype.str
            _add(digest, "array", f"{kind} {list(found.shape)}".encode())
            # as it lies there, for it may be all that memory holds
            flat = numpy.ascontiguousarray(found).reshape(-1)
            return _add(digest, "numbers", flat.view(numpy.uint8) if found.nbytes else b"")
    raise _refuse(type(value).__name__)


def _refuse(what: str) -> RegardError:
    return RegardError(f"data has a {what}, of which there is no digest: give texts, numbers, tensors or arrays.")


def _add(digest: Any, kind: str, content: Any) -> None:
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
