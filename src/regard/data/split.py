"""Training, validation and test parts by a hash of the source sentence, so that near-duplicates stay together."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from regard.core import RegardError

Part = Literal["train", "valid", "test"]


class Split(NamedTuple):
    """Pairs, or other examples, by part, each in the order they came."""

    train: list[Any]
    valid: list[Any]
    test: list[Any]


def split(
    pairs: Iterable[Any], *, test: float = 0.1, valid: float = 0.1, seed: int = 0,
    key: Callable[[Any], str] = itemgetter(0),
) -> Split:  # fmt: skip
    """Pairs by part: `test` and `valid` are fractions, and the rest is for training.

    >>> parts = split([(f"line {n}", f"Zeile {n}") for n in range(1000)])
    >>> [len(part) for part in parts]
    [778, 98, 124]

    Where a pair goes depends on its source sentence and `seed` alone (see `find_part`): not on the machine, the order
    or the other pairs. So the fractions are met up to chance, and data that comes later moves nothing. Of examples that
    are no pairs, `key` makes the sentence.
    """
    parts = Split([], [], [])
    for pair in pairs:
        getattr(parts, find_part(key(pair), test=test, valid=valid, seed=seed)).append(pair)
    return parts


def find_part(source: str, *, test: float = 0.1, valid: float = 0.1, seed: int = 0) -> Part:
    """The part a source sentence belongs to: "train", "valid" or "test".

    >>> find_part("How are you?") == find_part("how are you !")
    True

    Case, width, punctuation and spaces do not count. A larger `valid` moves no sentence out of the test.
    """
    if not (test >= 0 and valid >= 0 and test + valid <= 1):
        raise RegardError(f"test and valid must be fractions with a sum of at most 1, got test={test}, valid={valid}.")
    digest = hashlib.sha256(f"{seed}\n{fold(source)}".encode(errors="surrogatepass")).digest()
    # 53 bits, all that a float holds: the same number everywhere, below 1
    place = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
    return "test" if place < test else "valid" if place < test + valid else "train"


def fold(text: str) -> str:
    """What near-duplicates share: letters, digits and symbols in one case and width.

    >>> fold("\uff28ello,  World!")
    'helloworld'

    Text of nothing but punctuation keeps it.
    """
    even = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # punctuation, separators, and control or format characters
    return "".join(mark for mark in even if unicodedata.category(mark)[0] not in "PZC") or even.strip()
