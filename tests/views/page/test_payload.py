"""What a page holds, against dense weights: exact rows, maps, lists, and what fits."""

import importlib
import math

import numpy as np
import pytest
import torch

from regard import mask, score, weigh
from regard.engine.look import look
from regard.views.page import find_limit, page
from regard.views.page.exact import Keys, measure_error, pack_query
from regard.views.page.heads import split
from tests.views.page.reading import Read


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights_of(query, key, allowed=None, sink=None):
    """Dense, by torch alone: (h, n, m)."""
    key = key.repeat_interleave(query.shape[0] // key.shape[0], 0).double()
    scores = query.double() @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    if sink is None:
        return torch.softmax(scores, -1).numpy()
    extra = sink.double()[:, None, None].expand(-1, scores.shape[1], 1)
    return torch.softmax(torch.cat([scores, extra], -1), -1)[..., :-1].numpy()


def show(seen, tokens=None, **options):
    one = next(iter(seen.values())) if isinstance(seen, dict) else seen
    tokens = [f"t{k}" for k in range(one.received.shape[-1])] if tokens is None else tokens
    return Read(page(seen, tokens, None, **options).html)


@pytest.fixture
def tight(monkeypatch):
    """Pages that may have so many bytes beside their script."""

    def set_limit(size):
        # by its name: the room has a function of the same one
        module = importlib.import_module("regard.views.page")
        monkeypatch.setattr(module, "find_limit", lambda tokens: size)
        monkeypatch.setattr(module, "measure_rest", lambda payload: 0)

    return set_limit


@pytest.mark.parametrize("causal", [False, True])
def test_rows_from_query_and_key_are_the_dense_weights(causal):
    n, m = 61, 67
    # a channel with a huge mean, which half precision alone would blur
    query, key = draw(4, n, 8), draw(2, m, 8, seed=1) + 300 * torch.eye(8)[0]
    terms = {"mask": mask.Causal()} if causal else {}
    read = show({"a": look(query[None], key[None], keep=True, map=16, **terms)}, {"q": ["x"] * n, "k": ["y"] * m})
    allowed = torch.arange(m) <= torch.arange(n)[:, None] + m - n if causal else None
    dense = weights_of(query, key, allowed)
    for head, entry in enumerate(read.entries):
        assert entry["exact"]
        gap = np.abs(read.rows(head) - dense[head]).sum(1).max() / 2
        assert gap < 0.01
        assert entry["error"] <= gap * 1.01 + 1e-9
    # heads of one group share their keys
    assert [entry["blobs"]["key"] for entry in read.entries[:2]] == [read.entries[0]["blobs"]["key"]] * 2
    assert read.entries[0]["blobs"]["key"] != read.entries[2]["blobs"]["key"]


def test_a_sink_takes_its_share_of_exact_rows():
    query, key, sink = draw(2, 40, 8), draw(2, 40, 8, seed=1), torch.tensor([1.0, -2.0])
    read = show(look(query[None], key[None], weigh=weigh.Softmax(sink=sink), keep=True, map=8))
    assert np.allclose(np.stack([read.rows(0), read.rows(1)]), weights_of(query, key, sink=sink), atol=2e-3)


def test_keys_in_bytes_where_that_brings_in_more_heads(tight):
    n, d = 300, 64
    query, key = draw(8, n, d), draw(8, n, d, seed=1) + 50 * torch.eye(d)[3]
    seen = look(query[None], key[None], keep=True, map=16, top=64)
    tight(400_000)
    read = show(seen)
    exact = read.about(exact=True)
    assert 2 <= len(exact) < 8
    dense = weights_of(query, key)
    for entry in exact:
        assert read.data["blobs"][entry["blobs"]["key"]]["dtype"] == "u8"
        gap = np.abs(read.rows(entry["id"]) - dense[entry["head"]]).sum(1).max() / 2
        assert 1e-4 < gap < 0.03
    assert "key in centred bytes, at most 0.0" in read.data["note"]["en"]
    for entry in read.about(exact=False):
        assert entry["why"] == f"the page has room for query and key of {len(exact)} heads"
        # fewer than were seen, and the largest of them
        keys = read.get(entry["id"], "top_keys")
        assert 3 <= keys.shape[1] < 64
        assert np.array_equal(keys[:, 0], dense[entry["head"]].argmax(1))


@pytest.mark.parametrize("small", [False, True])
def test_rounding_a_query_moves_no_row(small):
    # nearly all keys far from the one that the channel's numbers count from
    key = draw(50, 4, seed=1).double()
    key[1:, 0] += 2000
    query = draw(30, 4).double()
    seen = look(query, key, score=score.Dot(scale=1.0), keep=True)
    keys = Keys.pack(seen.key, small)
    numbers, stat = pack_query(seen, keys)
    made = numbers.astype(float) @ keys.shown.numpy().T - stat[:, None]
    assert np.abs((made - torch.log_softmax(query @ key.T, -1).numpy()).mean(1)).max() < 1e-3


def test_numbers_too_large_for_half_precision_are_single():
    query, key = 1e6 * draw(1, 40, 4), 1e-6 * draw(1, 40, 4, seed=1)
    read = show(look(query[None], key[None], keep=True, map=8))
    assert read.data["blobs"][read.entries[0]["blobs"]["query"]]["dtype"] == "f32"
    assert np.isfinite(read.rows(0)).all()


def test_keys_that_bytes_would_blur_stay_in_half_precision(tight):
    query, key = 12 * draw(8, 300, 64), draw(8, 300, 64, seed=1)
    tight(400_000)
    read = show(look(query[None], key[None], keep=True, map=16))
    exact = read.about(exact=True)
    assert exact
    assert {read.data["blobs"][entry["blobs"]["key"]]["dtype"] for entry in exact} == {"f16"}
    assert "query and key in half precision" in read.data["note"]["en"]


@pytest.mark.parametrize("size", [150_000, 400_000, 1_500_000])
def test_pages_keep_to_their_size(tight, size):
    seen = look(draw(1, 8, 300, 64), draw(1, 8, 300, 64, seed=1), keep=True, map=64)
    tight(size)
    read = show(seen)
    assert sum(map(len, read.stores)) <= size


def test_lists_are_the_largest_dense_weights():
    query, key = draw(2, 50, 8), draw(2, 50, 8, seed=1)
    read = show(look(query[None], key[None], map=8, top=5))
    dense = weights_of(query, key)
    for head in range(2):
        keys, values = read.get(head, "top_keys"), read.get(head, "top_weights")
        best = np.argsort(-dense[head], axis=1)[:, :5]
        assert np.array_equal(keys, best)
        assert np.allclose(values, np.take_along_axis(dense[head], best, 1), rtol=1e-3)
        assert not read.entries[head]["exact"]
        assert read.entries[head]["why"].startswith("not kept")


def test_a_map_with_a_cell_for_each_pair_needs_no_more():
    weight = draw(6, seed=2)
    read = show(look(draw(1, 2, 9, 6), draw(1, 2, 9, 6, seed=1), score=score.Additive(weight), keep=True))
    dense = torch.softmax(torch.tanh(draw(2, 9, 6)[:, :, None] + draw(2, 9, 6, seed=1)[:, None]) @ weight, -1)
    assert np.allclose(read.get(1, "map"), dense[1], rtol=1e-3, atol=1e-6)
    assert read.entries[1]["exact"]
    assert "query" not in read.entries[1]["blobs"]
    # only what was kept knows its spans
    assert "spans" not in read.entries[1]["blobs"]
    causal = show(look(draw(1, 2, 9, 6), draw(1, 2, 9, 6, seed=1), mask=mask.Causal(), keep=True))
    assert causal.get(0, "spans").tolist() == [[0, k + 1] for k in range(9)]


def test_thumbnails_keep_the_mass():
    query, key = draw(3, 150, 8), draw(3, 150, 8, seed=1)
    read = show(look(query[None], key[None], map=100))
    dense = weights_of(query, key)
    for head in range(3):
        thumb = read.get(head, "thumb")
        # 150 queries in cells of two, and those in cells of two again
        cells = dense[head].reshape(75, 2, 75, 2).sum((1, 3))
        cells = np.pad(cells, ((0, 1), (0, 1))).reshape(38, 2, 38, 2).sum((1, 3))
        share = cells / np.array([*[4.0] * 37, 2.0])[:, None]
        assert thumb.shape == (38, 38)
        assert np.abs(thumb - share).max() < share.max() / 120
        assert read.get(head, "map").sum() == pytest.approx(150, rel=1e-3)


def test_the_statistics_are_the_means_of_the_rows():
    query, key = draw(2, 30, 8), draw(2, 30, 8, seed=1)
    read = show(look(query[None], key[None]))
    dense = weights_of(query, key)[1]
    stats = read.entries[1]["stats"]
    far = np.abs(np.arange(30)[:, None] - np.arange(30))
    assert stats["entropy"] == pytest.approx(-(dense * np.log(dense)).sum(1).mean(), rel=1e-4)
    assert stats["first"] == pytest.approx(dense[:, 0].mean(), rel=1e-4)
    assert stats["local"] == pytest.approx((dense * (far <= 8)).sum(1).mean(), rel=1e-4)
    assert stats["distance"] == pytest.approx((dense * far).sum(1).mean(), rel=1e-4)
    assert stats["received"] == pytest.approx(dense.sum(0).max() / 30, rel=1e-4)
    assert np.allclose(read.get(1, "received"), dense.sum(0), rtol=1e-3)
    assert np.allclose(read.get(1, "peak"), dense.max(1), rtol=1e-3)


def test_the_interesting_heads_are_neither_sinks_nor_diagonals(tight):
    n = 400
    query, key = 0.1 * draw(4, n, 16), 0.1 * draw(4, n, 16, seed=1)
    # even; all on the first key; all on its own key; each on a key far away
    key[1, 0] += 40
    query[1] += 4
    code = torch.nn.functional.normalize(draw(n, 16, seed=2), dim=-1)
    query[2], key[2] = 30 * code, 30 * code
    query[3], key[3] = 20 * code, 20 * code.roll(n // 2, 0)
    tight(90_000)
    read = show(look(query[None], key[None], map=32), heads=1)
    assert [entry["head"] for entry in read.entries if "map" in entry["blobs"]] == [3]
    assert all("thumb" in entry["blobs"] for entry in read.entries)
    assert "the 1 most interesting (low entropy, little weight on the first token" in read.data["note"]["en"]


def test_each_kind_has_a_head_in_detail_and_so_has_its_twin(tight):
    long, short = [f"s{k}" for k in range(90)], [f"t{k}" for k in range(80)]

    def see(seed):
        return {
            "encoder.0": look(3 * draw(1, 4, 90, 8, seed=seed), 3 * draw(1, 4, 90, 8, seed=9), map=16),
            "decoder.cross": look(0.1 * draw(1, 4, 80, 8, seed=seed), draw(1, 4, 90, 8, seed=8), map=16),
        }

    tight(50_000)
    read = show(see(0), {"source": long, "target": short}, other=see(5), heads=2)
    shown = [entry for entry in read.entries if "map" in entry["blobs"]]
    assert {entry["kind"] for entry in shown} == {"self", "cross"}
    places = [{(e["layer"], e["head"]) for e in shown if e["model"] == model} for model in (0, 1)]
    assert places[0] == places[1]
    assert len(places[0]) == 2
    assert read.data["models"] == ["A", "B"]


def test_sequences_and_heads_are_the_callers_own():
    query, key = draw(3, 2, 7, 4), draw(3, 2, 7, 4, seed=1)
    read = show(look(query, key), sequence=2)
    assert [entry["head"] for entry in read.entries] == [0, 1]
    assert np.allclose(read.get(1, "map"), weights_of(query[2], key[2])[1], rtol=1e-3)
    flat = show(look(query[:, 0], key[:, 0]), sequence=1)
    assert np.allclose(flat.get(0, "map"), weights_of(query[1, :1], key[1, :1])[0], rtol=1e-3)
    plain = show(look(query[0, 0], key[0, 0]))
    assert np.allclose(plain.get(0, "map"), weights_of(query[0, :1], key[0, :1])[0], rtol=1e-3)


def test_limits_grow_with_the_tokens():
    limits = [find_limit(tokens) for tokens in (1, 8192, 20000, 32768, 10**6)]
    assert limits == sorted(limits)
    assert limits[1] < 10e6
    assert limits[3] < 25e6


def test_a_key_that_is_not_finite_spoils_only_the_rows_that_see_it():
    query, key = draw(2, 1, 1, 300, 4).unbind(0)
    key[0, 0, 200] = torch.nan
    seen = look(query, key, mask=mask.Causal(), keep=True)
    part = split(seen, 0)[0]
    keys = Keys.pack(part.key, small=False)
    numbers, stat = pack_query(part, keys)
    assert np.isfinite(stat[:200]).all()
    assert measure_error(part, keys, numbers, stat) < 1e-2
    # bytes cannot say what is not a number
    keys = Keys.pack(part.key, small=True)
    assert measure_error(part, keys, *pack_query(part, keys)) == np.inf
