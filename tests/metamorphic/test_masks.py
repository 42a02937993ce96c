"""Laws about masks: they compose as sets do, and their promises to the engine hold on every tile."""

import pytest
import torch

from regard import attend
from regard.core import Tile
from regard.engine.tiles import layout
from tests.metamorphic.draws import DRAWS, as_leaves, assert_same, draw, draw_mask, gradients

pytestmark = pytest.mark.thin(2)


def write_out(mask, drawn, tile=None):
    tile = drawn.sizes.whole() if tile is None else tile
    return mask.settle(drawn.sizes).tile(tile).expand(tile.shape)


@pytest.mark.parametrize("number", DRAWS)
def test_masks_compose_as_sets_do(number):
    drawn = draw(number)
    a, b = draw_mask(drawn, 1), draw_mask(drawn, 1)
    dense_a, dense_b = write_out(a, drawn), write_out(b, drawn)
    for mask, dense in (
        (a & b, dense_a & dense_b),
        (a | b, dense_a | dense_b),
        (~a, ~dense_a),
        (~~a, dense_a),
        (~(a & b), ~dense_a | ~dense_b),
        (~(a | b), ~dense_a & ~dense_b),
        (~a | ~b, ~(dense_a & dense_b)),
        (a & (a | b), dense_a),
    ):
        assert torch.equal(write_out(mask, drawn), dense), mask


@pytest.mark.parametrize("number", range(60))
def test_a_mask_keeps_its_promises_on_every_tile(number):
    drawn = draw(number, square=number % 3 == 0)
    mask = draw_mask(drawn, 3).settle(drawn.sizes)
    whole = mask.tile(drawn.sizes.whole()).expand(drawn.sizes.whole().shape)
    index = drawn.sizes.whole().index()
    assert torch.equal(mask(*index).expand(whole.shape), whole)
    for _ in range(20):
        cuts = []
        for size in (drawn.b, drawn.h, drawn.n, drawn.m):
            start = drawn.dice.randrange(size)
            cuts.append(range(start, drawn.dice.randint(start + 1, size)))
        tile = Tile(*cuts)
        part = whole[tuple(slice(c.start, c.stop) for c in cuts)]
        assert torch.equal(mask.tile(tile).expand(tile.shape), part)
        span = mask.span(tile)
        outside = [j - tile.j.start for j in tile.j if j not in span]
        assert not part[..., outside].any(), f"{mask} allows keys outside {span} on {tile}"
        assert not span or (span.start >= tile.j.start and span.stop <= tile.j.stop)
        if mask.covers(tile):
            assert part.all(), f"{mask} does not cover {tile}"


@pytest.mark.parametrize("number", DRAWS)
def test_a_mask_is_its_written_out_self(number, monkeypatch):
    # spans skip work, covers skip the mask: the numbers must not tell
    drawn = draw(number)
    monkeypatch.setattr(layout, "BUDGET", (24, 300)[number % 2])
    mask = draw_mask(drawn, 3)
    leaves = as_leaves(*drawn.rows)
    answers = []
    for given in (mask, write_out(mask, drawn), ~~mask):
        out = attend(*leaves, mask=given, **drawn.terms, backend="tiled")
        answers.append([out, *gradients(out, *leaves)])
    for answer in answers[1:]:
        for one, two in zip(answer, answers[0], strict=True):
            assert_same(one, two)
