"""Maps of heads: what is in their images, their labels and their one scale, against dense weights."""

import math
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pytest
import torch

from regard import RegardError, views
from regard.engine.look import look
from regard.extras import install
from regard.views import fonts
from regard.views.figures import colours, compare
from tests.views.drawing import list_labels, make, pool, write

matplotlib = pytest.importorskip("matplotlib")
figure = pytest.importorskip("matplotlib.figure")

CHINESE = list("介绍西安的")


@pytest.fixture(autouse=True)
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_map_has_the_weights_of_its_head_and_sequence(tmp_path):
    seen, dense = make(5)
    axes = views.map(seen, head=2, sequence=1, tokens=["a", "b c", "$x$", "", "\n"], title="$t$")
    np.testing.assert_allclose(axes.images[0].get_array(), dense[1, 2], atol=1e-12)
    assert list_labels(axes.yaxis) == list_labels(axes.xaxis) == ["a", "b␣c", "$x$", "∅", "↵"]
    assert axes.images[0].norm.vmin == 0
    assert axes.images[0].norm.vmax == pytest.approx(dense[1, 2].max())
    assert axes.images[0].cmap.name == "cividis"
    texts = [*axes.get_xticklabels(), *axes.get_yticklabels(), axes._left_title]
    assert not any(text.get_parse_math() for text in texts)
    assert write(axes, tmp_path).shape[0] > 200


def test_a_coarse_map_has_means_whatever_a_cell_covers():
    seen, dense = make(50, 37, causal=True, map=8)
    axes = views.map(seen, head=1)
    assert seen.block == (7, 5)
    np.testing.assert_allclose(axes.images[0].get_array(), pool(dense[0, 1], 7, 5), atol=1e-12)
    # its places are the tokens'
    assert axes.get_xlim() == (-0.5, 36.5)
    assert axes.get_ylim() == (49.5, -0.5)
    assert axes.images[0].get_extent() == [-0.5, 39.5, 55.5, -0.5]
    assert axes.figure.axes[1].get_ylabel() == "mean weight"


def test_a_logarithmic_map_shows_what_is_weak_and_zero_is_its_floor():
    seen, dense = make(30, causal=True, sharp=9.0)
    image = views.map(seen, log=True).images[0]
    assert isinstance(image.norm, matplotlib.colors.LogNorm)
    assert image.norm.vmax == pytest.approx(dense[0, 0].max())
    assert image.norm.vmin == pytest.approx(dense[0, 0].max() * 1e-4)
    assert image.norm(0.0) == 0
    assert image.norm(image.norm.vmax / 100) == pytest.approx(0.5)


def test_a_few_bright_cells_do_not_darken_the_rest():
    table = np.full((40, 40), 0.01)
    table[0, 0] = 1.0
    norm, ramp = colours.share_scale([table])
    assert norm.vmax == pytest.approx(0.01)
    assert ramp.colorbar_extend == "max"
    # few cells, or none that stands out: the whole range
    assert colours.share_scale([table[:5, :5]])[0].vmax == 1.0
    assert colours.share_scale([np.linspace(0, 1, 2000)])[0].vmax == 1.0


def test_labels_are_the_keys_own_where_they_differ():
    axes = views.map(make(2, 3)[0], tokens=["a", "b"], keys=["x", "y", "z"])
    assert (list_labels(axes.yaxis), list_labels(axes.xaxis)) == (["a", "b"], ["x", "y", "z"])
    # where there are more keys, the queries' labels are not theirs
    axes = views.map(make(2, 3)[0], tokens=["a", "b"])
    assert "a" not in list_labels(axes.xaxis)


@pytest.mark.parametrize("shape", [(1, 4), (1, 1, 4), (1, 1, 1, 4)])
def test_one_token_is_enough(shape, tmp_path):
    seen = look(torch.ones(shape), torch.ones(shape))
    axes = views.map(seen, tokens=["x"])
    assert axes.images[0].get_array().tolist() == [[1.0]]
    assert write(axes, tmp_path).shape[0] > 100
    assert len(views.heads(seen).images) == 1
    assert views.row(seen, 0).patches[0].get_height() == 1.0


def test_the_third_axis_from_the_end_without_heads_is_the_batch():
    query = torch.randn(3, 4, 8)
    seen = look(query, query)
    dense = torch.softmax(query[2] @ query[2].mT / math.sqrt(8), -1)
    np.testing.assert_allclose(views.map(seen, sequence=2).images[0].get_array(), dense, atol=1e-6)


def test_weights_below_zero_have_the_colours_of_differences():
    norm, ramp = colours.share_scale([np.array([-0.2, 0.5])])
    assert (norm.vmin, norm.vmax, ramp.name) == (-0.5, 0.5, "blue_orange")
    red, _, blue, _ = ramp(0.0)
    assert blue > red
    red, _, blue, _ = ramp(1.0)
    assert red > blue
    with pytest.raises(RegardError, match=r"^log=True needs weights of 0 or more, got -0\.2: leave it out\.$"):
        colours.share_scale([np.array([-0.2, 0.5])], log=True)


def test_nothing_but_zeros_or_gaps_has_a_scale_too():
    for table in (np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((2, 2), np.inf)):
        for log in (False, True):
            norm, _ = colours.share_scale([table], log)
            assert norm.vmin < norm.vmax


# --- the caller's axes ------------------------------------------------------------------------------------------------


def test_the_callers_axes_are_used_and_no_figure_is_made():
    ours = figure.Figure()
    one, two = ours.add_subplot(121), ours.add_subplot(122)
    seen, dense = make()
    before = ours.get_size_inches().tolist()
    assert views.map(seen, ax=one) is one
    assert views.align(dense[0, 0], list("abcde"), list("vwxyz"), ax=two) is two
    assert one.figure is ours
    assert ours.get_size_inches().tolist() == before
    # a bar of colours for each
    assert len(ours.axes) == 4


def test_a_new_figure_holds_all_its_labels():
    axes = views.map(make()[0], tokens=["internationalisation"] * 5, title="a title")
    box = axes.figure.get_tightbbox()
    width, height = axes.figure.get_size_inches()
    assert 0 <= box.x0 < box.x1 <= width
    assert 0 <= box.y0 < box.y1 <= height


def test_the_users_settings_come_back():
    with matplotlib.rc_context({"font.size": 33.0}):
        views.map(make()[0])
        assert matplotlib.rcParams["font.size"] == 33.0


def test_what_no_font_has_is_a_box_and_one_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(fonts, "_list_installed", set)
    monkeypatch.setattr(fonts, "_add_packaged", list)
    monkeypatch.setattr(fonts, "_add_new", bool)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        axes = views.map(make()[0], tokens=CHINESE)
        write(axes, tmp_path)
    assert [str(x.message) for x in caught] == [
        "No font here has 介 安 的 绍 西, drawn as boxes: install Noto Sans CJK (Debian: fonts-noto-cjk)"
        f" or {install('plot')}."
    ]
    assert caught[0].filename == __file__
    assert set(list_labels(axes.xaxis)) == {"□"}


def test_chinese_is_drawn_where_a_font_has_it(tmp_path):
    if fonts.find_fonts("".join(CHINESE))[1]:
        pytest.skip("no font here has these characters")
    axes = views.map(make()[0], tokens=CHINESE)
    write(axes, tmp_path)
    assert list_labels(axes.xaxis) == CHINESE


def test_pyplot_knows_the_figure_where_it_is_in_use():
    script = """
import sys, torch
from regard import views
from regard.engine.look import look
assert not {"matplotlib", "rich", "IPython"} & set(sys.modules), "imported early"
seen = look(torch.eye(2), torch.eye(2))
views.map(seen)
assert "matplotlib.pyplot" not in sys.modules
from matplotlib import pyplot
assert pyplot.get_fignums() == []
axes = views.map(seen)
assert pyplot.get_fignums() == [1] and axes.figure is pyplot.gcf()
views.map(seen, ax=axes)
views.draw_alignment([[1.0]], ["a"], ["b"], sys.argv[1])
assert pyplot.get_fignums() == [1]
"""
    environment = {**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", script, f"{folder}/a.png"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- heads ------------------------------------------------------------------------------------------------------------


def test_all_heads_share_one_scale():
    (one, dense_one), (two, dense_two) = make(4, seed=1), make(6, seed=2, heads=2)
    axes = views.heads({"encoder.0": one, "$x$": two}, sequence=1)
    tables = [*dense_one[1], *dense_two[1]]
    assert len(axes.images) == 5
    for image, table in zip(axes.images, tables, strict=True):
        np.testing.assert_allclose(image.get_array(), table, atol=1e-12)
        assert image.norm is axes.images[0].norm
    assert axes.images[0].norm.vmax == pytest.approx(max(table.max() for table in tables))
    assert list_labels(axes.yaxis) == ["encoder.0", "$x$"]
    # a row for each layer, and one bar
    assert [image.get_extent()[0] for image in axes.images] == [0, 1, 2, 0, 1]
    assert [image.get_extent()[3] for image in axes.images] == [0, 0, 0, 1, 1]
    assert len(axes.figure.axes) == 2


@pytest.mark.parametrize("sort", ["entropy", "local", "first", "received"])
def test_heads_are_sorted(sort):
    seen, dense = make(20, heads=5, window=2)
    table = dense[0]
    away = np.abs(np.arange(20)[:, None] - np.arange(20))
    score = {
        "entropy": -(table * np.log(table)).sum(-1).mean(-1),
        "local": -(table * (away <= 2)).sum(-1).mean(-1),
        "first": -table[:, :, 0].mean(-1),
        "received": -table.sum(1).max(-1),
    }[sort]
    axes = views.heads([seen], sort=sort)
    order = np.argsort(score)
    for image, head in zip(axes.images, order, strict=True):
        np.testing.assert_allclose(image.get_array(), table[head], atol=1e-12)
    assert [text.get_text().split()[0] for text in axes.texts] == [f"0.{head}" for head in order]
    assert axes.get_title(loc="left") == f"heads by {sort}"


def test_small_maps_are_no_finer_than_the_eye():
    seen, dense = make(150, heads=1, batch=1)
    (image,) = views.heads(seen).images
    assert image.get_array().shape == (50, 50)
    np.testing.assert_allclose(image.get_array(), pool(dense[0, 0], 3, 3), atol=1e-12)


# --- row --------------------------------------------------------------------------------------------------------------


# --- what is wrong ----------------------------------------------------------------------------------------------------

SEEN, COARSE, FINE = make(4)[0], make(40, map=4)[0], make(40)[0]
EMPTY = look(torch.ones(2, 3), torch.ones(0, 3))
HUGE = look(torch.ones(3000, 2), torch.ones(3000, 2), keep=True, map=4, top=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: views.map("x"),
         "look must be a look, as `look` gives it or seen[name], or a tensor of weights, got str."),
        (lambda: views.map(EMPTY), "look has no queries or no keys: there is nothing to draw."),
        (lambda: views.map(SEEN, head=3), "head must be a whole number from 0 to 2, got 3."),
        (lambda: views.map(SEEN, head=-1), "head must be a whole number from 0 to 2, got -1."),
        (lambda: views.map(SEEN, head=1.0), "head must be a whole number from 0 to 2, got 1.0."),
        (lambda: views.map(SEEN, sequence=2), "sequence must be a whole number from 0 to 1, got 2."),
        (lambda: views.row(SEEN, 4), "query must be a whole number from 0 to 3, got 4."),
        (lambda: views.map(SEEN, tokens=["a"]), "tokens must be 4, one for each place, got 1."),
        (lambda: views.map(SEEN, keys=["a"]), "keys must be 4, one for each place, got 1."),
        (lambda: views.map(SEEN, tokens=[1, 2, 3, 4]), "tokens must be text, got int: decode the ids first."),
        (lambda: views.map(SEEN, ax=3), "ax must be one Axes of matplotlib, got int: take it from plt.subplots()."),
        (lambda: views.heads(3), "seen must be what `watch` or `look` gave, or weights, got int."),
        (lambda: views.heads({}), "seen has no looks: no attention ran while it watched."),
        (lambda: views.heads({"a": 3}), "seen['a'] must be a look, or weights, got int."),
        (lambda: views.heads(SEEN, sort="x"), "sort must be entropy, local, first or received, got 'x'."),
        (lambda: views.align(COARSE, ["a"] * 40, ["b"] * 40),
         "look has no 40×40 weights, its map is coarser: look again with map=40 or keep=True."),
        (lambda: views.align(HUGE, ["a"] * 3000, ["b"] * 3000),
         "look has 3000×3000 weights, too many to draw one by one: use map(look), or fewer tokens."),
        (lambda: views.align(SEEN, ["a"], ["b"]),
         "weights must be (targets, sources) = (1, 1), as there are tokens, got (4, 4)."),
        (lambda: compare(SEEN, FINE), "both looks must have as many queries and keys, got (4, 4) and (40, 40)."),
        (lambda: compare(COARSE, FINE),
         "both maps must have cells alike, got (10, 10) and (1, 1): look with one map=."),
        (lambda: compare(SEEN, SEEN, names=("a",)), "names must be two texts, one for each look."),
        (lambda: compare(SEEN, SEEN, ax=[1, 2]),
         "ax must be 3 Axes of matplotlib, as plt.subplots(1, 3) gives them."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
