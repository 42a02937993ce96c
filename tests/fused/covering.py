"""Which score × weigh × mask × bias the kernels are tried on: few, since the interpreter takes half a second for each.

By default every sample is there, every class of a score meets every class of a weigher, and the ways that a kernel goes
for scores and weighers meet every class of the other rooms. REGARD_FUSED=few, which `make test-all` takes, lets every
sample of a score meet every one of a weigher, and every class of any room every class of the others;
REGARD_FUSED=pairs lets every two samples meet, REGARD_FUSED=all takes every combination (hours).
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from regard.bias import Quadratic
from regard.core import Online, Pointwise, Row, Score
from regard.core.masks import Not, _Two
from regard.score import Custom, Dot
from tests.terms import Combination, combine, list_compositions, list_samples, own
from tests.wide import ALL

WALK = os.environ.get("REGARD_FUSED", "few" if ALL else "ways")
assert WALK in ("ways", "few", "pairs", "all"), f"REGARD_FUSED must be ways, few, pairs or all, got {WALK}"
# what no kernel is written for
REFUSED = (Custom, Quadratic)

Terms = dict[str, Any]
Pair = tuple[tuple[str, str], tuple[str, str]]


@cache
def list_rooms() -> dict[str, list[Any]]:
    """The samples that `fused` takes, room by room."""
    rooms = {room: [x for x in list_samples(room) if not isinstance(x, REFUSED)] for room in ("score", "weigh")}
    biases = [x for x in list_samples("bias") if not isinstance(x, REFUSED)]
    return {**rooms, "mask": [*list_samples("mask"), *list_compositions()], "bias": [None, *biases]}


@cache
def list_fitting() -> list[Terms]:
    """All combinations: of scores and weighers none is particular about sizes, of masks and biases some are."""
    rooms = list_rooms()
    fits = [
        (mask, bias)
        for mask, bias in itertools.product(rooms["mask"], rooms["bias"])
        if isinstance(combine(rooms["score"][0], rooms["weigh"][0], mask, bias), Combination)
    ]
    return [
        {"score": score, "weigh": weigh, "mask": mask, "bias": bias}
        for score, weigh, (mask, bias) in itertools.product(rooms["score"], rooms["weigh"], fits)
    ]


def list_pairs(terms: Terms) -> set[Pair]:
    """The pairs of names that a combination brings together."""
    met = set()
    for one, two in itertools.combinations(terms, 2):
        together = {one, two} == {"score", "weigh"}
        if WALK == "ways":
            name = _name_class if together else _name_way
        else:
            name = repr if WALK == "pairs" or together else _name_class
        met.add(((one, name(terms[one])), (two, name(terms[two]))))
    # and each sample by itself
    return met | {((room, repr(term)), (room, repr(term))) for room, term in terms.items()}


def _name_way(term: Any) -> str:
    """Kernels go one way for products and one for features, and one for each kind of weigher."""
    if isinstance(term, Score):
        return "product" if term.is_dot or isinstance(term, Dot) else "features"
    return next((kind.__name__ for kind in (Online, Pointwise, Row) if isinstance(term, kind)), _name_class(term))


def _name_class(term: Any) -> str:
    """A mask made of masks is like no other."""
    return repr(term) if isinstance(term, _Two | Not) else type(term).__name__


def choose() -> Iterator[Combination]:
    """Combinations such that every pair of names is in one of them."""
    for terms in list_fitting() if WALK == "all" else _cover(list_fitting()):
        combination = combine(**{room: own(term) for room, term in terms.items()})
        assert isinstance(combination, Combination)
        yield combination


def _cover(every: list[Terms]) -> list[Terms]:
    """Each pair of the rooms that have the most, with what brings the most new pairs beside it."""
    # by content, so that the order in which samples are listed decides nothing
    every = sorted(every, key=lambda terms: zlib.crc32(repr(terms).encode()))
    most = ("score", "mask") if WALK == "pairs" else ("score", "weigh")
    name = _name_class if WALK == "ways" else repr
    groups: dict[tuple[str, ...], list[tuple[Terms, set[Pair]]]] = {}
    for terms in every:
        groups.setdefault(tuple(name(terms[room]) for room in most), []).append((terms, list_pairs(terms)))
    missing = set().union(*(pairs for group in groups.values() for _, pairs in group))
    chosen = []
    for group in groups.values():
        best, pairs = max(group, key=lambda one: len(one[1] & missing))
        missing -= pairs
        chosen.append(best)
    # what is left, if anything, wherever it is
    for terms, pairs in itertools.chain.from_iterable(groups.values()):
        if pairs & missing:
            missing -= pairs
            chosen.append(terms)
    return chosen
