"""Rows, alignments and two maps side by side, against dense weights."""

import math
import warnings

import numpy as np
import pytest
import torch

from regard import views
from regard.engine.look import look
from regard.mask import Causal
from regard.views import reading
from regard.views.figures import compare
from regard.views.figures.compare import diverge
from tests.views.drawing import list_labels, make

matplotlib = pytest.importorskip("matplotlib")
figure = pytest.importorskip("matplotlib.figure")

CHINESE = list("介绍西安的")


@pytest.fixture(autouse=True)
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def read_bars(axes, m):
    """Heights by place."""
    if axes.patches:
        return np.array([bar.get_height() for bar in axes.patches])
    return np.array([line[1, 1] for line in axes.collections[0].get_segments()])


@pytest.mark.parametrize("options", [{"rows": (7, 3)}, {"keep": True}, {"map": 256}], ids=str)
@pytest.mark.parametrize("n", [10, 90])
def test_a_row_is_exact_where_it_can_be(options, n):
    seen, dense = make(n, causal=True, **({"map": 4} | options))
    axes = views.row(seen, 3, head=1, sequence=1, tokens=[f"t{k}" for k in range(n)])
    np.testing.assert_allclose(read_bars(axes, n), dense[1, 1, 3], atol=1e-9)
    assert axes.get_title(loc="left") == "query 3 t3, head 1"


def test_a_row_of_the_top_keys_says_so():
    seen, dense = make(40, map=4, top=2)
    assert views.row(seen, 3, title="mine").get_title(loc="left").startswith("mine (top 2 keys only, ")
    axes = views.row(seen, 3)
    row = dense[0, 0, 3]
    best = np.argsort(-row)[:2]
    expected = np.zeros(40)
    expected[best] = row[best]
    np.testing.assert_allclose(read_bars(axes, 40), expected, atol=1e-9)
    assert axes.get_title(loc="left") == f"query 3, head 0 (top 2 keys only, {row[best].sum():.0%} of the weight)"


def test_keys_that_a_sink_outweighs_have_no_weight():
    from regard import weigh

    query, key = torch.randn(1, 2, 40, 8), torch.randn(1, 2, 40, 8)
    sink = weigh.Softmax(sink=torch.tensor([0.0, 500.0]))
    seen = look(query, key, weigh=sink, keep=True, map=8)
    assert seen.logsumexp[0, 1].min() > 400
    assert reading.read_table(seen, 1).max() < 1e-100
    assert read_bars(views.row(seen, 3, head=1), 40).max() < 1e-100
    scores = torch.cat([query[0, 0] @ key[0, 0].mT / math.sqrt(8), torch.zeros(40, 1)], -1)
    np.testing.assert_allclose(reading.read_table(seen, 0), torch.softmax(scores, -1)[:, :-1], atol=1e-5)


def test_a_row_without_allowed_keys_has_no_weight():
    seen = look(torch.ones(3, 8), torch.ones(2, 8), mask=Causal(), keep=True, map=1)
    assert math.isinf(seen.logsumexp[0])
    np.testing.assert_allclose(reading.read_table(seen), [[0, 0], [1, 0], [0.5, 0.5]], atol=1e-6)


def test_of_many_keys_the_largest_is_named():
    seen, dense = make(200, rows=(5,))
    axes = views.row(seen, 5, tokens=[f"t{k}" for k in range(200)])
    assert f"t{dense[0, 0, 5].argmax()}" in {text.get_text() for text in axes.texts}


def test_grouped_heads_share_their_keys():
    query, key = torch.randn(1, 4, 9, 8), torch.randn(1, 2, 9, 8)
    seen = look(query, key, keep=True, map=2)
    # heads 0 and 1 have the first keys, 2 and 3 the second
    for head, group in enumerate((0, 0, 1, 1)):
        dense = torch.softmax(query[0, head] @ key[0, group].mT / math.sqrt(8), -1)
        np.testing.assert_allclose(read_bars(views.row(seen, 4, head=head), 9), dense[4], atol=1e-5)


# --- align ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"keep": True, "map": 2}])
def test_an_alignment_of_a_look_is_that_of_its_weights(options):
    seen, dense = make(3, 5, **options)
    axes = views.align(seen, list("abcde"), list("xyz"), head=1, title="t")
    np.testing.assert_allclose(axes.images[0].get_array(), dense[0, 1], atol=1e-9)
    assert (list_labels(axes.xaxis), list_labels(axes.yaxis)) == (list("abcde"), list("xyz"))
    assert [text.get_text() for text in axes.texts] == [f"{x:.2f}" for x in dense[0, 1].ravel()]


# --- compare ----------------------------------------------------------------------------------------------------------


def test_two_maps_share_a_scale_and_the_difference_is_symmetric():
    (one, dense_one), (two, dense_two) = make(seed=1), make(seed=2)
    panels = compare(one, two, head=1, other_head=2, names=("a", "b"))
    first, second, less = (axes.images[0] for axes in panels)
    np.testing.assert_allclose(first.get_array(), dense_one[0, 1], atol=1e-12)
    np.testing.assert_allclose(second.get_array(), dense_two[0, 2], atol=1e-12)
    np.testing.assert_allclose(less.get_array(), dense_two[0, 2] - dense_one[0, 1], atol=1e-12)
    assert first.norm is second.norm
    assert first.norm.vmax == pytest.approx(max(dense_one[0, 1].max(), dense_two[0, 2].max()))
    most = np.abs(dense_two[0, 2] - dense_one[0, 1]).max()
    assert (less.norm.vmin, less.norm.vmax) == pytest.approx((-most, most))
    p, q = torch.tensor(dense_one[0, 1]), torch.tensor(dense_two[0, 2])
    kl = torch.nn.functional.kl_div
    js = sum(kl(((p + q) / 2).log(), x, reduction="none").sum(-1) for x in (p, q)).mean() / 2
    assert [axes.get_title(loc="left") for axes in panels] == [
        "a, head 1",
        "b, head 2",
        f"difference, JS divergence {js:.3f}",
    ]
    assert panels[1].get_ylabel() == ""
    # three panels, two bars
    assert len(panels[0].figure.axes) == 5


def test_divergence_is_zero_of_equals_and_log_two_of_strangers():
    table = np.array([[0.2, 0.8], [1.0, 0.0]])
    assert diverge(table, table) == 0
    assert diverge(np.eye(2), np.eye(2)[::-1]) == pytest.approx(math.log(2))
    assert diverge(np.zeros((2, 2)), table) == pytest.approx(math.log(2) / 2)


def test_a_comparison_takes_three_axes():
    ours = figure.Figure()
    axes = [ours.add_subplot(1, 3, k) for k in (1, 2, 3)]
    seen, _ = make()
    assert compare(seen, seen, ax=np.array(axes)).tolist() == axes
