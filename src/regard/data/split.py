"""Training, validation and test split: by a hash of the text, stratified by label, or by masks."""

from __future__ import annotations

import hashlib
import itertools
import math
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from regard.core import RegardError
from regard.data.subset import Subset

Part = Literal["train", "valid", "test"]
# to validate by more than this takes longer and tells no more
MOST_HELD_OUT = 2000
# sequences that are all in memory
PLAIN = (list, tuple, str, Subset)


class Split(NamedTuple):
    """Training, validation and test examples, each in the order they came.

    Of a list or an iterator the parts are lists, of another sequence `Subset`s, which make examples when asked.
    """

    train: Sequence[Any]
    valid: Sequence[Any]
    test: Sequence[Any]


def split(
    pairs: Iterable[Any], *, test: float = 0.1, valid: float = 0.1, seed: int = 0,
    key: Callable[[Any], str] = itemgetter(0),
) -> Split:  # fmt: skip
    """A split by a hash of each text: `test` and `valid` are fractions, and the rest is for training.

    >>> parts = split([(f"line {n}", f"Zeile {n}") for n in range(1000)])
    >>> [len(part) for part in parts]
    [778, 98, 124]

    Where a pair goes depends on its source sentence and `seed` alone (see `find_part`): not on the machine, the order
    or the other pairs. So the fractions are met up to chance, and data that comes later moves nothing. Of examples that
    are no pairs, `key` makes the sentence.
    """
    rows = take_first(pairs)
    return _pick(rows, [find_part(key(row), test=test, valid=valid, seed=seed) for row in rows])


def split_by_masks(source: Sequence[Any], masks: Mapping[Part, Iterable[bool]]) -> Split:
    """A split of one whole, as the nodes of a graph, by boolean masks; no part is read without the others.

    >>> parts = split_by_masks("abcd", {"train": [1, 1, 0, 0], "valid": [0, 0, 1, 0], "test": [0, 0, 0, 1]})
    >>> [list(part) for part in parts], parts.train.source
    ([['a', 'b'], ['c'], ['d']], 'abcd')
    """
    found: dict[str, list[int]] = {}
    for part in Split._fields:
        mask = list(masks.get(part, ()))  # type: ignore[call-overload]
        if mask and len(mask) != len(source):
            raise RegardError(f"the mask of {part} must have {len(source)} entries, one for each, got {len(mask)}.")
        found[part] = [number for number, is_in in enumerate(mask) if is_in]
    for part in ("valid", "test"):
        if both := set(found["train"]).intersection(found[part]):
            raise RegardError(
                f"the mask of {part} must have none that train learns from, and both have {min(both)}: take it out of"
                " one."
            )
    return Split(*(Subset(source, numbers, is_whole=True) for numbers in found.values()))


def take_first(examples: Any, limit: int | None = None) -> Sequence[Any]:
    """The first `limit` examples, or all: of an iterator a list, of what has a length and numbers a `Subset`.

    >>> class Squares:
    ...     __len__ = lambda self: 3
    ...     __getitem__ = lambda self, number: number**2
    >>> first = take_first(Squares(), 2)
    >>> len(first), list(first)
    (2, [0, 1])
    """
    if isinstance(examples, PLAIN):
        return examples if limit is None else examples[:limit]
    if isinstance(examples, Mapping) or not (hasattr(examples, "__len__") and hasattr(examples, "__getitem__")):
        return list(itertools.islice(examples, limit))
    # as datasets of torch are, which need know no slices, nor where they end
    count = len(examples)
    return Subset(examples, range(count if limit is None else min(limit, count)))


def _pick(rows: Sequence[Any], places: Iterable[str]) -> Split:
    """The split, by the part of each row."""
    found: dict[str, list[int]] = {part: [] for part in Split._fields}
    for number, part in enumerate(places):
        found[part].append(number)
    if isinstance(rows, list):
        return Split(*([rows[number] for number in numbers] for numbers in found.values()))
    return Split(*(Subset(rows, numbers) for numbers in found.values()))


def split_evenly(
    examples: Iterable[Any], *, held_out: float | None = None, seed: int = 0,
    key: Callable[[Any], str] = itemgetter(0), label: Callable[[Any], str] = lambda example: "",
) -> Split:  # fmt: skip
    """A stratified split: the fraction `held_out` for validation, as many for the test, each label in both.

    >>> parts = split_evenly([(f"text {n}", "+-"[n % 2]) for n in range(40)], label=itemgetter(1))
    >>> [len(part) for part in parts], sorted(label for _, label in parts.valid)
    ([28, 6, 6], ['+', '+', '+', '-', '-', '-'])

    None holds out √n of n examples or a twentieth of them, whichever is more, but at most a fifth and at most 2,000.
    Which they are depends on their texts, labels and `seed`, not on their order or the machine; texts that `fold` makes
    equal stay together. Of each label a text is learned from, and all texts where there are fewer than three.
    """
    rows = take_first(examples)
    if held_out is None:
        count = max(1, min(len(rows) // 5, max(round(math.sqrt(len(rows))), len(rows) // 20), MOST_HELD_OUT))
    else:
        count = math.ceil(held_out * len(rows))
    # each is read once: it may be made anew whenever it is asked for
    groups, labels = defaultdict[str, list[int]](list), list[str]()
    for number, row in enumerate(rows):
        groups[fold(key(row))].append(number)
        labels.append(label(row))
    strata: dict[str, list[str]] = defaultdict(list)
    for text, numbers in groups.items():
        # one that has two labels is of the first, whatever the order
        strata[min(labels[number] for number in numbers)].append(text)
    sizes = {name: sum(len(groups[text]) for text in texts) for name, texts in strata.items() if len(texts) > 2}
    places = dict.fromkeys(range(len(rows)), "train")
    held = {"valid": 0, "test": 0}
    for name, share in sorted(_share_out(2 * count, sizes).items(), key=lambda x: (-x[1], x[0])):
        mine = dict.fromkeys(held, 0)
        for text in sorted(strata[name], key=lambda text: _place(text, seed))[:-1]:
            # to the part that has fewer of this label, and of all
            part, size = min(held, key=lambda x: (mine[x], held[x])), len(groups[text])
            if sum(mine.values()) + size <= share:
                mine[part] += size
                held[part] += size
                places.update(dict.fromkeys(groups[text], part))
    for part in held:
        # a text that is there more often than it should is better than none at all
        left = [[text for text in strata[name] if places[groups[text][0]] == "train"] for name in sizes]
        spare = [text for texts in left if len(texts) > 1 for text in texts]
        if count and not held[part] and spare:
            text = min(spare, key=lambda text: (len(groups[text]), _place(text, seed)))
            places.update(dict.fromkeys(groups[text], part))
    return _pick(rows, places.values())


def _share_out(count: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Share out `count` in proportion to sizes, by the largest remainders."""
    total = sum(sizes.values())
    shares = {name: count * size // total for name, size in sizes.items()}
    spare = count - sum(shares.values())
    for name in sorted(sizes, key=lambda name: (-(count * sizes[name] % total), name))[:spare]:
        shares[name] += 1
    return shares


def find_part(source: str, *, test: float = 0.1, valid: float = 0.1, seed: int = 0) -> Part:
    """The part that a sentence belongs to by its hash: "train", "valid" or "test".

    >>> find_part("How are you?") == find_part("how are you !")
    True

    Case, width, punctuation and spaces do not count. A larger `valid` moves no sentence out of the test.
    """
    if not (test >= 0 and valid >= 0 and test + valid <= 1):
        raise RegardError(f"test and valid must be fractions with a sum of at most 1, got test={test}, valid={valid}.")
    place = _place(fold(source), seed)
    return "test" if place < test else "valid" if place < test + valid else "train"


def _place(text: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}\n{text}".encode(errors="surrogatepass")).digest()
    # 53 bits, all that a float holds: the same number everywhere, below 1
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def fold(text: str) -> str:
    """A text normalised to find near-duplicates: letters, digits and symbols in one case and width.

    >>> fold("\uff28ello,  World!")
    'helloworld'

    Text of nothing but punctuation keeps it.
    """
    even = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # punctuation, separators, and control or format characters
    return "".join(mark for mark in even if unicodedata.category(mark)[0] not in "PZC") or even.strip()
