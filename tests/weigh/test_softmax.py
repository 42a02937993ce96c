"""Softmax and its sink against the formula, at scores where the naive formula fails too."""

import pytest
import torch

from regard import attend
from regard.mask import Allowed
from regard.weigh import Softmax
from tests.layouts import cut
from tests.tolerances import assert_close

BACKENDS = ["reference", "tiled"]


def weights_of(backend, scores, **terms):
    """The weights that a backend gives to rows of scores: one-hot values show them."""
    n, m = scores.shape[-2:]
    value = torch.eye(m, dtype=scores.dtype).expand(*scores.shape[:-2], m, m)
    zeros = scores.new_zeros(*scores.shape[:-2], n, 1), scores.new_zeros(*scores.shape[:-2], m, 1)
    with cut(1, 1, 3, 2):
        return attend(*zeros, value, bias=scores, backend=backend, **terms)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shift", [0.0, 1e3, -1e3, 1e6])
def test_a_common_shift_changes_nothing(backend, shift):
    scores = torch.randn(1, 2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # a power of two apart, so that the shifted scores are exact
    scores = (scores * 2**10).round() / 2**10
    assert_close(weights_of(backend, scores + shift), torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_enormous_scores_stay_finite(backend):
    scores = [[1e300, 0.0, -1e300], [-1e300, -1e300, -1e300], [1e300, 1e300, 0.0]]
    expected = [[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]]
    scores, expected = (torch.tensor(x, dtype=torch.float64)[None, None] for x in (scores, expected))
    assert_close(weights_of(backend, scores), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sink", [[0.5], [0.3, -2.0], [200.0, -200.0], [-torch.inf, 0.0]], ids=str)
def test_a_sink_takes_its_share(backend, sink):
    scores = torch.randn(3, 2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits = torch.tensor(sink, dtype=torch.float64)
    share = torch.exp(logits).view(-1, 1, 1)
    expected = torch.exp(scores) / (torch.exp(scores).sum(-1, keepdim=True) + share)
    assert_close(weights_of(backend, scores, weigh=Softmax(sink=logits)), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sink", [None, torch.tensor(-0.5, dtype=torch.float64)], ids=["no sink", "sink"])
def test_a_row_with_nothing_is_zero(backend, sink):
    scores = torch.randn(1, 1, 3, 4, dtype=torch.float64)
    allowed = torch.ones(3, 4, dtype=torch.bool)
    allowed[1] = False
    weights = weights_of(backend, scores, weigh=Softmax(sink=sink), mask=Allowed(allowed))
    assert weights[0, 0, 1].tolist() == [0, 0, 0, 0]
    assert (weights[0, 0, [0, 2]] > 0).all()


def test_one_sink_serves_all_heads():
    scores = torch.randn(1, 2, 5, 7, dtype=torch.float64)
    one, each = (Softmax(sink=torch.full(shape, 0.7, dtype=torch.float64)) for shape in ((), (2,)))
    assert torch.equal(weights_of("tiled", scores, weigh=one), weights_of("tiled", scores, weigh=each))
