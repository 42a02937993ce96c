"""Which score × weigh × mask × bias the kernels are tried on: few, since the interpreter takes half a second for each.

By default every sample is there, and the ways that a kernel goes for scores and weighers meet every class of the other
rooms, those of scores and weighers too. REGARD_FUSED=few, which `make test-all` takes, lets every
sample of a score meet every one of a weigher, and every class of any room every class of the others;
REGARD_FUSED=pairs lets every two samples meet, REGARD_FUSED=all takes every combination (hours).
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from regard.bias import Quadratic
from regard.core import Row, Score, Weigh
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


class Names(NamedTuple):
    """What a term is called: itself, by its class, and by the way that a kernel goes for it."""

    own: str
    kind: str
    way: str


# terms by their ids, of which `list_rooms` keeps all: to write one out takes long, and there are many thousand times
_NAMES: dict[int, tuple[Any, Names]] = {}


def name(term: Any) -> Names:
    """Kernels go one way for products and one for features, and one more for rows that are solved first."""
    known = _NAMES.get(id(term))
    if known is None or known[0] is not term:
        # a mask made of masks is like no other
        own = repr(term)
        kind = way = own if isinstance(term, _Two | Not) else type(term).__name__
        if isinstance(term, Score):
            way = "product" if term.is_dot or isinstance(term, Dot) else "features"
        elif isinstance(term, Weigh):
            way = "solved" if isinstance(term, Row) else "streamed"
        known = _NAMES[id(term)] = term, Names(own, kind, way)
    return known[1]


def list_pairs(terms: Terms) -> set[Pair]:
    """The pairs of names that a combination brings together, and each name by itself."""
    names = {room: name(term) for room, term in terms.items()}
    met = {((room, found.own), (room, found.own)) for room, found in names.items()}
    for one, two in itertools.combinations(names, 2):
        left, right = names[one], names[two]
        together = {one, two} == {"score", "weigh"}
        if WALK == "pairs" or (together and WALK == "few"):
            met.add(((one, left.own), (two, right.own)))
        elif WALK == "few":
            met.add(((one, left.kind), (two, right.kind)))
        elif together:
            met |= {((one, left.kind), (two, right.way)), ((one, left.way), (two, right.kind))}
        elif {one, two} != {"mask", "bias"}:
            # those two do not know of each other in any kernel
            met.add(((one, left.way), (two, right.way)))
    return met


def choose() -> Iterator[Combination]:
    """Combinations such that every pair of names is in one of them."""
    for terms in list_fitting() if WALK == "all" else _cover(list_fitting()):
        combination = combine(**{room: own(term) for room, term in terms.items()})
        assert isinstance(combination, Combination)
        yield combination


def _cover(every: list[Terms]) -> list[Terms]:
    """Each pair of the rooms that have the most, with what brings the most new pairs beside it."""
    # by content, so that the order in which samples are listed decides nothing
    every = sorted(every, key=lambda terms: zlib.crc32(" ".join(name(x).own for x in terms.values()).encode()))
    most = ("score", "mask") if WALK == "pairs" else ("score", "weigh")
    groups: dict[tuple[str, ...], list[tuple[Terms, set[Pair]]]] = {}
    for terms in every:
        group = tuple(name(terms[room]).way if WALK == "ways" else name(terms[room]).own for room in most)
        groups.setdefault(group, []).append((terms, list_pairs(terms)))
    missing = set().union(*(pairs for group in groups.values() for _, pairs in group))
    chosen = []
    for group in groups.values():
        best, pairs = max(group, key=lambda one: len(one[1] & missing))
        missing -= pairs
        chosen.append(best)
    # what is left, if anything, wherever it is: each time the one that brings the most
    while missing:
        best, pairs = max(itertools.chain.from_iterable(groups.values()), key=lambda one: len(one[1] & missing))
        missing -= pairs
        chosen.append(best)
    return chosen
