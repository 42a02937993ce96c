"""Hard attention: the best key, or draws whose frequencies are softmax."""

from importlib import import_module

import pytest
import torch
from scipy.stats import chisquare

from regard import attend
from regard.mask import Causal
from regard.weigh import Hard
from tests.layouts import cut

BACKENDS = ["reference", "tiled"]


def draw(scores, backend="tiled", layout=(1, 1, 1000, 1), **options):
    """Which key each query took, (…, i): one-hot values show it."""
    m = scores.shape[-1]
    query, key = scores, torch.eye(m, dtype=scores.dtype).expand(*scores.shape[:-2], m, m)
    weigh = options.pop("weigh", Hard("sample", seed=3))
    with cut(*layout):
        out = attend(query, key, key, score=lambda q, k: q @ k.mT, weigh=weigh, backend=backend, **options)
    assert (out.sum(-1) == 1).all()
    return out.argmax(-1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("logits", [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0, -1.0], [-3.0, 3.0, 0.0, 0.5, 0.6]], ids=str)
def test_draws_are_as_frequent_as_softmax_says(logits, seed):
    rows = 4000
    scores = torch.tensor(logits, dtype=torch.float64).expand(1, 2, rows, -1)
    drawn = draw(scores, weigh=Hard("sample", seed=seed))
    expected = rows * scores[0, 0, 0].softmax(-1)
    for head in drawn[0]:
        # fifteen seeds and heads: far fewer than a thousand fair trials
        assert chisquare(head.bincount(minlength=len(logits)), expected).pvalue > 1e-3


def test_draws_do_not_depend_on_one_another():
    # two fair draws agree half of the time: neighbours in queries, heads and sequences alike
    drawn = draw(torch.zeros(2, 2, 4000, 2, dtype=torch.float64))
    pairs = [(drawn[:, :, 1:], drawn[:, :, :-1]), (drawn[:, 0], drawn[:, 1]), (drawn[0], drawn[1])]
    for one, other in pairs:
        # five standard deviations of a fair coin
        assert abs((one == other).double().mean().item() - 0.5) < 5 * 0.5 / one.numel() ** 0.5


@pytest.mark.parametrize("mask", [Causal(), Causal(-1)], ids=repr)
def test_every_backend_and_tile_draws_the_same(mask):
    scores = torch.randn(3, 2, 5, 7, dtype=torch.float64).softmax(-1).log()
    query, key = torch.randn(3, 2, 5, 3), torch.randn(3, 2, 7, 3)
    value = torch.randn(3, 2, 7, 4)
    terms = {"weigh": Hard("sample", seed=11), "mask": mask, "bias": scores.float()}
    expected = attend(query, key, value, **terms, backend="reference")
    for layout in ((3, 2, 5, 7), (1, 1, 2, 7), (2, 2, 3, 7), (1, 2, 1, 7)):
        with cut(*layout):
            assert torch.equal(attend(query, key, value, **terms, backend="tiled"), expected)


def test_draws_are_independent_of_dropout(monkeypatch):
    # even with one seed for both: else the key that is taken would be the one that is sure to be kept
    monkeypatch.setattr(import_module("regard.engine.run"), "draw_seed", lambda generator: 3)
    rows = torch.zeros(1, 2, 2000, 1)
    value = torch.ones(1, 2, 2, 1)
    out = attend(rows, torch.zeros(1, 2, 2, 1), value, weigh=Hard("sample", seed=3), dropout=0.5, backend="tiled")
    assert set(out.flatten().tolist()) == {0.0, 2.0}
    assert abs((out == 0).double().mean().item() - 0.5) < 5 * 0.5 / out.numel() ** 0.5


def test_a_generator_makes_draws_reproducible():
    scores = torch.zeros(1, 1, 500, 3, dtype=torch.float64)
    one, again, next_one = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1), torch.Generator()
    first = draw(scores, weigh=Hard("sample", generator=one))
    assert torch.equal(first, draw(scores, weigh=Hard("sample", generator=again), backend="reference"))
    # the generator moves on, so the next call draws anew
    assert not torch.equal(first, draw(scores, weigh=Hard("sample", generator=one)))
    assert not torch.equal(first, draw(scores, weigh=Hard("sample", generator=next_one.manual_seed(2))))


def test_without_a_generator_torchs_global_one_draws():
    scores = torch.zeros(1, 1, 500, 3, dtype=torch.float64)
    torch.manual_seed(5)
    first, second = (draw(scores, weigh=Hard("sample")) for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(first, draw(scores, weigh=Hard("sample")))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_best_key_is_taken_the_first_of_equals(backend):
    scores = torch.tensor([[1.0, 3.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0], [-5.0, -9.0, -7.0, -5.0]], dtype=torch.float64)
    assert draw(scores[None, None], backend=backend, weigh=Hard()).tolist() == [[[1, 0, 0]]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", [Hard(), Hard("sample", seed=0)], ids=repr)
def test_hidden_keys_are_never_taken(weigh, backend):
    scores = torch.zeros(1, 1, 6, 6, dtype=torch.float64)
    scores[..., 5] = 50.0
    drawn = draw(scores, backend=backend, weigh=weigh, mask=Causal(), layout=(1, 1, 2, 6))
    assert (drawn[0, 0] <= torch.arange(6)).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", [Hard(), Hard("sample", seed=0)], ids=repr)
def test_nothing_allowed_is_nothing_taken(weigh, backend):
    query, key, value = torch.randn(1, 2, 4, 3), torch.randn(1, 2, 4, 3), torch.randn(1, 2, 4, 3)
    out = attend(query, key, value, weigh=weigh, mask=Causal(-2), backend=backend)
    assert (out[:, :, :2] == 0).all()
    assert (out[:, :, 2] == value[:, :, 0]).all()
