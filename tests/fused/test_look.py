"""The kernels of a look find what dense weights show."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from regard.bias import Alibi, Dense
from regard.engine.looking.walk import Wanted
from regard.mask import Allowed, Causal, Document, Full, Lengths, Window
from regard.score import Additive, Bilinear, Dot
from regard.weigh import Relu, Softmax

pytest.importorskip("triton")

from regard.engine.backends.fused import look, survey
from regard.engine.backends.fused.shapes import Shape
from tests.fused.against import DEVICE
from tests.fused.looking import check_look, draw, make_call
from tests.wide import thin, wide

# no multiple of a tile, and two tiles of keys
N, M = 5, 70
WANTED = Wanted(4, (0, 4), 2, 3)
IDS = torch.arange(M) // 8
MASKS = [
    Full(),
    Causal(),
    Causal(torch.tensor([3, 64])),
    Window(4, 2),
    Lengths(torch.tensor([67, 0])),
    Lengths(torch.arange(10).view(2, 5) * 7),
    Causal(-2) & Lengths(torch.tensor([1, 70])),
    Window(30, 0) & Lengths(torch.tensor([50, 66])),
    Document(IDS, IDS[:N]),
    Allowed(torch.rand(N, M, generator=torch.Generator().manual_seed(5)) > 0.8),
]


@pytest.mark.parametrize("mask", thin(MASKS, 2), ids=str)
def test_masks(mask):
    query, key = draw(2, 1, N, 5), draw(2, 1, M, 5, seed=1)
    call = make_call(query, key, mask=mask)
    allowed = call.mask.tile(call.sizes.whole()).expand(2, 1, N, M)
    # what nobody sees, and who sees nothing, may be NaN
    key[~allowed.any(-2)] = torch.nan
    query[~allowed.any(-1)] = torch.nan
    check_look(query, key, WANTED, mask=mask)


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (18, 17), (5, 130)], ids=str)
def test_sizes(shape):
    n, m = shape
    # of 130 keys, those around the first three queries lie in two tiles
    wanted = Wanted(20, tuple(range(n)), 2, 3)
    check_look(draw(1, 1, n, 16), draw(1, 1, m, 16, seed=1), wanted)


@pytest.mark.parametrize("terms", [
    {"weigh": Softmax(torch.tensor([0.3, 6.0])), "mask": Window(4, 2)},
    {"weigh": Softmax(torch.tensor(-0.4)), "score": Dot(scale=-0.7)},
    {"score": Dot(scale=3.0, cap=2.0), "mask": Causal()},
    {"score": Bilinear(draw(5, 5, seed=7))},
    {"bias": Alibi(torch.tensor([0.5, 0.1])), "mask": Lengths(torch.tensor([40]))},
    {"bias": Dense(torch.full((N, M), torch.finfo(torch.float32).min))},
], ids=str)  # fmt: skip
def test_terms(terms):
    check_look(draw(1, 2, N, 5), draw(1, 1, M, 5, seed=1), WANTED, **terms)


def test_nan_shows_where_it_is_seen():
    key = draw(1, 1, M, 5, seed=1)
    key[:, :, 67] = torch.nan
    query = draw(1, 1, N, 5)
    wanted = Wanted(4, (), N, 3)
    found = look.run(make_call(query, key, mask=Causal()), query, key, wanted)
    # query i stands at key i + M − N
    ill = torch.arange(N) >= 67 - (M - N)
    for name in ("entropy", "peak", "total", "distance", "local"):
        assert torch.equal(found[name].cpu().isnan()[0, 0], ill), name
    assert found["top_weights"].cpu().isnan().any(-1)[0, 0].equal(ill)
    assert found["map"].cpu().isnan().any(-1)[0, 0].equal(ill)


@pytest.mark.parametrize("count", thin([1, 3, 5, 8, 40], 2))
def test_lines_of_the_map_in_blocks(monkeypatch, count):
    """Lines of several blocks, of several pieces, and many lines in one block; the last are shorter."""
    monkeypatch.setattr(survey, "GATHER", Shape(16, 64))
    check_look(draw(1, 1, 37, 5), draw(1, 1, 17, 5, seed=1), Wanted(2, (), count, 3), mask=Causal(-9))


@wide
def test_lines_in_parts_that_fill_their_blocks(monkeypatch):
    """Pieces of 4 rows, 3 to a line and 4 to a block: four lines fill three blocks."""
    monkeypatch.setattr(survey, "GATHER", Shape(16, 64))
    monkeypatch.setattr(survey, "PIECE", 1)
    monkeypatch.setattr(survey, "BUDGET", 10_000)
    parts, cut = [], survey.Survey.cut
    monkeypatch.setattr(survey.Survey, "cut", lambda self: parts.extend(cut(self)) or cut(self))
    check_look(draw(1, 2, 70, 5), draw(1, 1, 17, 5, seed=1), Wanted(2, (), 8, 3), mask=Causal(-9))
    assert parts == [(0, 1, 0, 4), (0, 1, 4, 4), (1, 1, 0, 4), (1, 1, 4, 4)]


@pytest.mark.parametrize(("n", "pieces"), [
    # all of 256 lines, each of its own length
    (512, (2, 1)), (2048, (8, 1)), (8192, (32, 1)), (16384, (64, 1)), (131072, (64, 8)), (17000, (16, 5)),
])  # fmt: skip
def test_pieces_are_full_of_rows(n, pieces):
    rows = torch.zeros(1, 1, n, 16, dtype=torch.bfloat16)
    made = look.prepare(make_call(rows, rows[:, :, :512]), rows, rows[:, :, :512], Wanted(16, (), 256, 8))
    assert (made.tall, made.pieces, made.tile) == (*pieces, 64)


def test_wide_float32_has_short_blocks():
    """Longer ones do not fit into the shared memory of an H200."""
    rows = torch.zeros(1, 1, 500, 200)
    made = look.prepare(make_call(rows, rows), rows, rows, Wanted(16, (), 4, 8))
    assert (made.tall, made.pieces, made.tile) == (16, 8, 16)


def test_infinite_keys_have_no_weight():
    """Also where a block has places without a row."""
    key = draw(1, 1, M, 5, seed=1)
    key[:, :, 30] = -torch.inf
    found = check_look(draw(1, 1, N, 5).abs(), key, WANTED)
    assert found["received"][0, 0, 30] == 0


def test_large_scores_have_no_weights_above_the_peak():
    """Each score is rounded by some units, and not by the same in all kernels."""
    query, key = 3e4 * draw(1, 1, 40, 64), 3e4 * draw(1, 1, M, 64, seed=1)
    found = look.run(make_call(query, key), query, key, Wanted(4, (), 2, 3))
    assert torch.equal(found["top_weights"][..., 0], found["peak"])
    assert (found["top_weights"] <= found["peak"][..., None]).all()
    assert (found["top_keys"][..., 0] >= 0).all()


@pytest.fixture
def written(monkeypatch):
    """How many rows were written out, call by call."""
    counts, write = [], survey.Survey.write

    def count(self, heads, chosen):
        counts.append(int((chosen >= 0).sum()))
        return write(self, heads, chosen)

    monkeypatch.setattr(survey.Survey, "write", count)
    return counts


def test_scores_that_are_all_equal(written):
    found = check_look(torch.zeros(1, 1, N, 5, device=DEVICE), draw(1, 1, M, 5), Wanted(4, (), 2, 3))
    assert (found["top_keys"] >= 0).all()
    assert written == []


def test_equal_scores_far_above_the_rest(written):
    key = 0.1 * draw(1, 1, M, 5)
    key[..., 3:60, :] = 2.0
    found = check_look(draw(1, 1, N, 5).abs(), key, Wanted(4, (), 2, 3))
    assert ((found["top_keys"] >= 3) & (found["top_keys"] < 60)).all()
    assert written == []


def test_more_keys_above_the_bar_than_a_list_has_room_for(written):
    """Keys that fall into one column of the tiles, whose other columns make a low bar; the last are largest."""
    tiles = torch.arange(52, device=DEVICE)
    key = torch.zeros(1, 1, 52 * 64, 2, device=DEVICE)
    key[..., 0] = -draw(1, 1, 52 * 64).abs()
    key[0, 0, tiles * 64 + tiles * 5 % 64, 0] = 2 + 0.05 * tiles
    query = torch.tensor([[[[1.0, 0.0], [-1.0, 0.0]]]], device=DEVICE)
    check_look(query, key, Wanted(4, (), 1, 0))
    assert written == [1]


@wide
@pytest.mark.parametrize("budget", [1, 60_000])
def test_in_parts_it_is_the_same(monkeypatch, budget):
    rows = draw(1, 2, N, 5), draw(1, 2, M, 5, seed=1)
    call, wanted = make_call(*rows, mask=Causal()), Wanted(3, (1,), 3, 2)
    whole = look.run(call, *rows, wanted)
    monkeypatch.setattr(survey, "BUDGET", budget)
    monkeypatch.setattr(survey, "ROWS_BUDGET", budget)
    cut = look.run(call, *rows, wanted)
    assert all(torch.allclose(cut[name], x, atol=1e-6) for name, x in whole.items())
    assert torch.equal(cut["top_keys"], whole["top_keys"])


def test_without_a_top():
    found = check_look(draw(1, 1, N, 5), draw(1, 1, M, 5), Wanted(0, (), 2, 0))
    assert found["top_keys"].shape == (1, 1, N, 0)


@pytest.mark.parametrize("mask", [mask for mask in MASKS if not isinstance(mask, Document | Allowed)], ids=str)
def test_spans(mask):
    call = make_call(draw(2, 2, N, 5), draw(2, 1, M, 5), mask=mask)
    spans = look.find_spans(call)
    j = torch.arange(M, device=DEVICE)
    allowed = (j >= spans[..., :1]) & (j < spans[..., 1:])
    assert spans.dtype == torch.int32
    assert torch.equal(allowed.expand(2, 2, N, M), call.mask.tile(call.sizes.whole()).expand(2, 2, N, M))


def test_spans_of_what_is_no_interval():
    for mask in MASKS[-2:]:
        assert look.find_spans(make_call(draw(2, 2, N, 5), draw(2, 1, M, 5), mask=mask)) is None


@pytest.mark.parametrize(("terms", "wanted", "words"), [
    ({"score": Additive(draw(5))}, WANTED, "Additive is not a dot product."),
    ({"weigh": Relu()}, WANTED, "Relu is not softmax."),
    ({}, Wanted(33, (), 4, 3), "its kernels name up to 32 keys for a query, not 33."),
])  # fmt: skip
def test_what_has_no_kernel(terms, wanted, words):
    assert look.refuse(make_call(draw(1, 1, N, 5), draw(1, 1, M, 5), **terms), wanted) == words


def test_sizes_that_have_no_kernel(monkeypatch):
    assert "widths up to 256, got 300." in look.refuse(make_call(draw(1, 1, 2, 300), draw(1, 1, 2, 300)), WANTED)
    assert "float64" in look.refuse(make_call(draw(1, 1, 2, 3).double(), draw(1, 1, 2, 3).double()), WANTED)
    monkeypatch.setattr(look, "MOST", 2)
    assert "fewer than 2**26 keys, got 3." in look.refuse(make_call(draw(1, 1, 2, 3), draw(1, 1, 3, 3)), WANTED)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "width"), list(product([torch.float32, torch.bfloat16, torch.float16], [8, 64, 256]))
)
def test_widths_on_a_device(dtype, width):
    check_look(
        draw(1, 2, 300, width, dtype=dtype), draw(1, 1, 517, width, dtype=dtype, seed=1), Wanted(16, (7,), 64, 8)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("mask", [Full(), Causal(), Window(300, 40) & Lengths(torch.tensor([1900, 0]))], ids=str)
@pytest.mark.parametrize("size", [1900, 4500])
def test_lengths_on_a_device(mask, size):
    rows = draw(2, 2, size, 64, dtype=torch.bfloat16), draw(2, 1, 2100, 64, dtype=torch.bfloat16, seed=1)
    check_look(*rows, Wanted(32 if size > 2000 else 16, (7,), 16, 8), mask=mask)


@pytest.mark.gpu
def test_the_same_bits_each_time_and_little_memory():
    rows = [draw(1, 32, 16384, 64, dtype=torch.bfloat16, seed=seed) for seed in range(2)]
    call, wanted = make_call(*rows), Wanted(16, (), 256, 8)
    one = look.run(call, *rows, wanted)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    other = look.run(call, *rows, wanted)
    assert torch.cuda.max_memory_allocated() - before <= 256 * 2**20
    assert all(torch.equal(x, other[name]) for name, x in one.items())
