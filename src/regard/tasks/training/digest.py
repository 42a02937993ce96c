"""Digests of data: whether a run goes on with what it began with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any


def digest_data(*parts: Any) -> str:
    """A name for data that no other data has."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def digest_texts(examples: Iterable[Any]) -> str:
    """A name for the texts of examples, which stand first in each, as text or as words; white space does not count.

    >>> digest_texts([("a cat sat", "x")]) == digest_texts([(("a", "cat", "sat"), ("DET", "NOUN", "VERB"))])
    True
    """
    digest = hashlib.sha256()
    for example in examples:
        digest.update("".join("".join(example[0]).split()).encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()[:16]
