"""Tiles: every allowed pair once, no pair twice, and no tile larger than its budget."""

import random

import pytest
import torch

from regard import attend
from regard.core import Pair, Sizes
from regard.engine.tiles import layout
from regard.engine.tiles.layout import Layout, lay_out
from regard.mask import Causal, Edges, Full, Lengths, Window
from regard.score import Additive, Custom, Dot, Gaussian
from regard.weigh import Entmax, Sigmoid, Softmax
from tests.primes import noise
from tests.terms import cotangent
from tests.tolerances import assert_all_close


def sizes(b, h, n, m):
    return Sizes(lead=(b,), h=h, g=h, n=n, m=m, d=3, c=3, e=3)


def pair(footprint=1, keeps_heads=False):
    made = Pair()
    made.footprint, made.keeps_heads = footprint, keeps_heads
    return made


def count_visits(laid: Layout, of: Sizes, mask) -> torch.Tensor:
    visits = torch.zeros(of.b, of.h, of.n, of.m, dtype=torch.long)
    for row in laid.rows(of, mask):
        for tile in laid.tiles(row):
            b, h, i, j = (slice(r.start, r.stop) for r in (tile.b, tile.h, tile.i, tile.j))
            visits[b, h, i, j] += 1
    return visits


MASKS = {
    "full": lambda b, n, m: Full(),
    "causal": lambda b, n, m: Causal(),
    "past": lambda b, n, m: Causal(-n // 2),
    "window": lambda b, n, m: Window(1, 0),
    "lengths": lambda b, n, m: Lengths(torch.arange(b) % (m + 1)),
    "edges": lambda b, n, m: Edges(torch.arange(0, n, 2), torch.arange(0, n, 2) % m),
    "nothing": lambda b, n, m: ~Full(),
    "both": lambda b, n, m: Causal() & Window(2, 2),
}


@pytest.mark.parametrize("name", MASKS)
def test_every_allowed_pair_is_visited_once(name):
    chance = random.Random(0)
    for _ in range(60):
        b, h, n, m = (chance.randint(1, most) for most in (3, 3, 40, 60))
        of = sizes(b, h, n, m)
        mask = MASKS[name](b, n, m).settle(of)
        budget = chance.choice([1, 5, 24, 60, 300, 2**18])
        footprint, whole, keeps = chance.choice([1, 2, 7]), chance.random() < 0.3, chance.random() < 0.3
        laid = lay_out(of, mask, pair(footprint, keeps), whole, budget)
        visits = count_visits(laid, of, mask)
        allowed = mask.tile(of.whole()).expand(visits.shape)
        assert visits.max() <= 1
        assert (visits[allowed] == 1).all(), (of, laid)


def test_a_tile_fits_its_budget():
    chance = random.Random(1)
    for _ in range(300):
        b, h, n, m = (chance.randint(1, most) for most in (9, 9, 3000, 3000))
        footprint, budget = chance.choice([1, 2, 64]), chance.choice([2**10, 2**14, 2**18])
        laid = lay_out(sizes(b, h, n, m), Full(), pair(footprint), False, budget)
        assert laid.sequences * laid.heads * laid.queries * laid.keys * footprint <= budget, laid


def test_promises_come_before_the_budget():
    of = sizes(4, 8, 100, 1000)
    assert lay_out(of, Full(), pair(), True, 10) == Layout(1, 1, 1, None)
    assert lay_out(of, Full(), pair(keeps_heads=True), False, 10).heads == 8


def test_a_small_call_is_one_tile():
    laid = lay_out(sizes(2, 3, 50, 60), Full(), pair(), False, layout.BUDGET)
    assert laid == Layout(2, 3, 50, 60)


def test_a_narrow_band_is_cut_finely():
    of = sizes(1, 1, 4096, 4096)
    mask = Window(32, 32).settle(of)
    laid = lay_out(of, mask, pair(), False, layout.BUDGET)
    visited = sum(len(row.i) * len(row.j) for row in laid.rows(of, mask))
    # the band holds 65 keys a query; blocks of whole tiles would look at hundreds
    assert visited <= 3 * 65 * 4096


@pytest.mark.parametrize("budget", [1, 6, 24, 100])
@pytest.mark.parametrize("weigh", [Softmax(noise(1)), Sigmoid(), Entmax()], ids=repr)
@pytest.mark.parametrize("score", [Dot(), Additive(noise(3)), Gaussian(), Custom(lambda q, k: q @ k.mT)], ids=repr)
def test_any_budget_gives_the_same(score, weigh, budget, monkeypatch):
    rows = [noise(2, 2, n, 3, seed=n).requires_grad_() for n in (5, 7, 7)]

    def run(backend):
        out = attend(*rows, score=score, weigh=weigh, mask=Window(3, 1), backend=backend)
        return out.detach(), *torch.autograd.grad(out, rows, cotangent(out))

    monkeypatch.setattr(layout, "BUDGET", budget)
    assert_all_close(run("tiled"), run("reference"), ["output", "query", "key", "value"])
