"""Laws about keys: their order does not matter, nor do hidden ones, nor where a call is cut."""

import pytest
import torch

from regard import attend
from regard.engine.tiles import layout
from regard.mask import Allowed, Causal, Lengths
from tests.metamorphic.draws import DRAWS, as_leaves, assert_same, draw, draw_mask, gradients

pytestmark = pytest.mark.thin(2)

BACKENDS = ["reference", "tiled"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", DRAWS)
def test_the_order_of_keys_does_not_matter(number, backend):
    drawn = draw(number)
    allowed = drawn.bools(drawn.n, drawn.m)
    order = torch.randperm(drawn.m, generator=drawn.noise)
    query, key, value = as_leaves(*drawn.rows)
    out = attend(query, key, value, mask=allowed, **drawn.terms, backend=backend)
    moved = as_leaves(query, key[:, :, order], value[:, :, order])
    other = attend(*moved, mask=allowed[:, order], **drawn.terms, backend=backend)
    assert_same(other, out)
    one, two = gradients(out, query, key, value), gradients(other, *moved)
    assert_same(two[0], one[0], "dquery")
    assert_same(two[1], one[1][:, :, order], "dkey")
    assert_same(two[2], one[2][:, :, order], "dvalue")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", DRAWS)
def test_hidden_keys_change_nothing(number, backend):
    drawn = draw(number)
    query, key, value = as_leaves(*drawn.rows)
    out = attend(query, key, value, **drawn.terms, backend=backend)
    extra = drawn.dice.randint(1, 30)
    padded = as_leaves(
        query, *(torch.cat([x, 9 * drawn.tensor(drawn.b, drawn.g, extra, x.shape[-1])], 2) for x in (key, value))
    )
    lengths = torch.full((drawn.b,), drawn.m)
    masks = (Lengths(lengths), Allowed(torch.arange(drawn.m + extra) < drawn.m))
    other = attend(*padded, mask=masks[number % 2], **drawn.terms, backend=backend)
    assert_same(other, out)
    one, two = gradients(out, query, key, value), gradients(other, *padded)
    assert_same(two[0], one[0], "dquery")
    for at in (1, 2):
        assert_same(two[at][:, :, : drawn.m], one[at], "dkey or dvalue")
        assert not two[at][:, :, drawn.m :].any()


@pytest.mark.parametrize("number", DRAWS)
def test_the_size_of_tiles_does_not_matter(number, monkeypatch):
    drawn = draw(number)
    mask = draw_mask(drawn)
    leaves = as_leaves(*drawn.rows)
    answers = []
    for budget in (24, 200, 3000, 2**18):
        monkeypatch.setattr(layout, "BUDGET", budget)
        seeded = torch.Generator().manual_seed(1)
        dropout = 0.2 * (number % 2)
        out = attend(*leaves, mask=mask, **drawn.terms, dropout=dropout, generator=seeded, backend="tiled")
        answers.append([out, *gradients(out, *leaves)])
    for answer in answers[1:]:
        for one, two in zip(answer, answers[0], strict=True):
            assert_same(one, two)


@pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
@pytest.mark.parametrize("number", DRAWS)
def test_later_keys_do_not_reach_earlier_queries(number, backend):
    drawn = draw(number, square=True)
    offset = drawn.dice.randint(-2, 2)
    out = attend(*drawn.rows, mask=Causal(offset), **drawn.terms, backend=backend)
    more = drawn.dice.randint(1, 20)
    rows = [torch.cat([x, drawn.tensor(*x.shape[:2], more, x.shape[-1])], 2) for x in drawn.rows]
    # with positive offsets the last queries see some of what was appended
    sure = max(drawn.n - max(offset, 0), 0)
    longer = attend(*rows, mask=Causal(offset), **drawn.terms, backend=backend)
    assert_same(longer[:, :, :sure], out[:, :, :sure])
    if number % 4 == 0:
        # and what was appended does reach the later ones: the law above is not empty
        assert (longer[:, :, drawn.n :] != 0).any()


@pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
@pytest.mark.parametrize("number", DRAWS)
def test_decoding_in_chunks_is_decoding_at_once(number, backend):
    drawn = draw(number, square=True)
    whole = attend(*drawn.rows, mask=Causal(), **drawn.terms, backend=backend)
    start, parts = 0, []
    while start < drawn.n:
        stop = min(drawn.n, start + drawn.dice.randint(1, 9))
        cache = (x[:, :, :stop] for x in drawn.rows[1:])
        parts.append(attend(drawn.query[:, :, start:stop], *cache, mask=Causal(), **drawn.terms, backend=backend))
        start = stop
    assert_same(torch.cat(parts, 2), whole)
