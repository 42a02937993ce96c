"""Masks against loops over all pairs, and the promises by which engines skip work."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from regard.core import Mask, Sizes, Tile
from regard.mask import Allowed, Causal, Document, Edges, Full, Grid, Lengths, Window
from tests.mask.rules import rule_of, write_out
from tests.terms import SAMPLE_SIZES, list_compositions, list_samples

WIDE, SQUARE = SAMPLE_SIZES
# leading axes of 2 × 3, and no head axis: masks are given as the caller sees the call
FOLDED = Sizes(lead=(2, 3), h=2, g=2, n=5, m=7, d=3, c=3, e=3)
HEADLESS = replace(FOLDED, lead=(3,), h=1, g=1, has_heads=False)


def draw(*shape: int, low: int = 0, high: int = 8) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(sum(shape)))


def fits(mask: Mask) -> tuple[Mask, Sizes]:
    return mask, next(sizes for sizes in SAMPLE_SIZES if mask.misfit(sizes) is None)


CASES = [
    *map(fits, list_samples("mask")),
    *map(fits, list_compositions()),
    (Causal(0), WIDE), (Causal(9), WIDE), (Causal(-9), WIDE), (Causal(), SQUARE), (Causal(draw(2, 3)), FOLDED),
    (Window(0, 0), WIDE), (Window(9, 9), WIDE), (Window(1, 0, offset=-7), WIDE), (Window(0, 2, offset=9), WIDE),
    # nearer than any key, or farther: sums of a place and a position fit into 64 bits
    (Causal(2**62), WIDE), (Causal(-(2**62)), WIDE), (Window(2**63 - 1, 0), WIDE), (Window(0, 2**63 - 1), WIDE),
    (Window(2**62, 1, offset=2**62), WIDE), (Window(1, 2**62 - 2, offset=-(2**62)), WIDE),
    (Causal(torch.tensor([2**63 - 1, -(2**63)])), WIDE), (Window(2, 2, torch.tensor([2**63 - 1, 1])), WIDE),
    (Window(2**20, 2, torch.tensor([-(2**63), 2**62])), WIDE),
    (Window(1, 1, offset=draw(6, low=-3)), FOLDED), (Window(2, 2, offset=draw(3).int()), HEADLESS),
    (Lengths(draw(2, 3)), FOLDED), (Lengths(draw(6)), FOLDED), (Lengths(draw(2, 3, 5)), FOLDED),
    (Lengths(torch.tensor([0, 0])), WIDE), (Lengths(torch.tensor([7, 7], dtype=torch.uint8)), WIDE),
    (Document(draw(6, high=3)), SQUARE), (Document(draw(2, 6, high=3)), SQUARE),
    (Document(draw(7, high=2), draw(2, 3, 5, high=3)), FOLDED),
    (Document(draw(3, 7, high=2), draw(5, high=9)), HEADLESS),
    (Edges(draw(0).long(), draw(0).long()), WIDE), (Edges(torch.tensor([4, 4]), torch.tensor([0, 0])), WIDE),
    (Edges(draw(30, high=5), draw(30, high=7)), WIDE), (Edges(draw(9, high=5).int(), draw(9, high=7).short()), FOLDED),
    (Grid(1, 6, radius=2), SQUARE), (Grid(6, 1, radius=0), SQUARE), (Grid(2, 3, radius=(1, 0)), SQUARE),
    (Grid(3, 2, radius=9), SQUARE),
    (Allowed(draw(5, 7, high=2).bool()), FOLDED), (Allowed(draw(3, 1, 1, 7, high=2).bool()), FOLDED),
    (Allowed(draw(2, 1, 2, 5, 1, high=2).bool()), FOLDED), (Allowed(draw(3, 5, 7, high=2).bool()), HEADLESS),
    (Allowed(torch.tensor(True)), WIDE), (Allowed(draw(2, 1, 1, high=2).bool()), WIDE),
    (~(Causal() & ~Window(1, 0)), WIDE), (~~Causal(), WIDE), (~(Full() | Causal()), WIDE), (Full() & ~Causal(1), WIDE),
    ((Causal() | Lengths(torch.tensor([5, 1]))) & (Window(2, 2) | ~Edges(draw(9, high=5), draw(9, high=7))), WIDE),
    (Grid(2, 3) & Document(draw(6, high=2)) | Causal(-2), SQUARE),
]  # fmt: skip

every_case = pytest.mark.parametrize(("mask", "sizes"), CASES, ids=lambda x: repr(x) if isinstance(x, Mask) else x.n)


def tiles(sizes: Sizes, count: int = 60) -> list[Tile]:
    """The whole call, each single pair's row, and boxes drawn at random."""
    chance = random.Random(0)

    def part(size: int) -> range:
        start = chance.randrange(size)
        return range(start, chance.randrange(start, size) + 1)

    drawn = [Tile(part(sizes.b), part(sizes.h), part(sizes.n), part(sizes.m)) for _ in range(count)]
    rows = [Tile(range(sizes.b), range(sizes.h), range(i, i + 1), range(sizes.m)) for i in range(sizes.n)]
    return [sizes.whole(), *rows, *drawn]


@every_case
def test_a_mask_is_its_rule(mask, sizes):
    assert mask.misfit(sizes) is None
    settled, rule = mask.settle(sizes), rule_of(mask, sizes)
    for tile in tiles(sizes):
        truth = write_out(rule, tile)
        for made in (settled.tile(tile), settled(*tile.index())):
            assert made.dtype == torch.bool
            assert torch.equal(made.expand(tile.shape), truth), tile


@every_case
def test_spans_and_covers_keep_their_promises(mask, sizes):
    settled, rule = mask.settle(sizes), rule_of(mask, sizes)
    for tile in tiles(sizes):
        truth = write_out(rule, tile)
        allowed = {j for at, j in enumerate(tile.j) if truth[..., at].any()}
        span = settled.span(tile)
        assert set(span) <= set(tile.j), tile
        assert allowed <= set(span), tile
        if settled.covers(tile):
            assert truth.all(), tile


# where work can be skipped it is: without this, a span that never narrows would pass
@pytest.mark.parametrize(
    ("mask", "row", "span"),
    [
        (Causal(), 0, range(3)),
        (Causal(-2), 1, range(0)),
        (Causal(torch.tensor([3, 0])), 1, range(5)),
        (Window(2, 0), 1, range(1, 4)),
        (Window(1, 2, offset=-1), 4, range(2, 6)),
        (Window(1, 0, offset=torch.tensor([0, 5])), 1, range(7)),
        (Lengths(torch.tensor([4, 0])), 3, range(4)),
        (Edges(torch.tensor([2, 2]), torch.tensor([1, 3])), 2, range(1, 4)),
        (Edges(torch.tensor([2, 2]), torch.tensor([1, 3])), 1, range(0)),
        (Document(torch.tensor([0, 1, 1, 2, 2, 2, 0]), torch.tensor([1, 2, 9, 0, 1])), 0, range(1, 3)),
        (Document(torch.tensor([0, 1, 1, 2, 2, 2, 0]), torch.tensor([1, 2, 9, 0, 1])), 2, range(0)),
        (Causal() & Window(1, 9), 1, range(2, 4)),
        (Window(0, 0, offset=0) | Window(0, 0, offset=2), 1, range(1, 4)),
        (~Causal(9), 0, range(0)),
    ],
    ids=repr,
)  # fmt: skip
def test_spans_are_narrow(mask, row, span):
    tile = Tile(range(2), range(2), range(row, row + 1), range(7))
    found = mask.settle(WIDE).span(tile)
    assert list(found) == list(span)


@pytest.mark.parametrize(
    ("mask", "covered"),
    [
        (Full(), True), (Causal(6), True), (Causal(5), False), (Window(4, 6, offset=0), True),
        (Window(3, 6, offset=0), False),
        (Causal(6) & Full(), True), (Causal(5) | Full(), True), (~Causal(-5), True), (~Causal(-4), False),
    ],
    ids=repr,
)  # fmt: skip
def test_full_tiles_are_covered(mask, covered):
    assert mask.settle(WIDE).covers(WIDE.whole()) == covered


@pytest.mark.parametrize("mask", [Causal(0), Window(1, 1, offset=0), Grid(2, 3), Full(), ~Causal(0)], ids=repr)
def test_one_mask_serves_several_devices(mask):
    whole = SQUARE.whole()
    settled = mask.settle(SQUARE)
    assert settled.tile(whole).device.type == "cpu"
    assert settled.tile(replace(whole, device=torch.device("meta"))).device.type == "meta"


def test_masks_compose_by_operators():
    causal, window = Causal(), Window(1, 0)
    assert repr((causal & window) | ~causal) == "((Causal() & Window(before=1, after=0)) | ~Causal())"
    assert (Full() & Full()) == (Full() & Full())
