"""Weights over the patches of a picture, and on the edges of a graph."""

import sys

import numpy as np
import pytest
import torch

from regard import RegardError, views

matplotlib = pytest.importorskip("matplotlib")
figure = pytest.importorskip("matplotlib.figure")
patch = pytest.importorskip("matplotlib.patches")

PICTURE = np.linspace(0, 1, 6 * 9 * 3).reshape(6, 9, 3)
GREY = PICTURE @ [0.299, 0.587, 0.114]


# --- patches ----------------------------------------------------------------------------------------------------------


def test_patches_lie_on_the_picture_row_by_row():
    axes = views.patches(torch.arange(7.0) / 28, PICTURE, grid=(2, 3), skip=1)
    below, above = axes.images
    np.testing.assert_allclose(below.get_array(), GREY)
    np.testing.assert_allclose(above.get_array(), np.arange(1, 7).reshape(2, 3) / 28, atol=1e-6)
    # both from corner to corner
    assert below.get_extent() == above.get_extent() == [0, 9, 6, 0]
    assert 0 < above.get_alpha() < 1
    assert axes.get_title(loc="left") == "1 leading token skipped, with a weight of 0"


def test_what_is_skipped_is_said():
    axes = views.patches([0.5, 0.25, 0.25], PICTURE, skip=2)
    assert axes.get_title(loc="left") == "2 leading tokens skipped, with a weight of 0.75"
    assert views.patches([0.5], PICTURE).get_title(loc="left") == ""


@pytest.mark.parametrize(
    "image",
    [
        (PICTURE * 255).round().astype(np.uint8),
        torch.tensor((PICTURE * 255).round().astype(np.uint8)).movedim(-1, 0),
        torch.tensor(PICTURE).movedim(-1, 0).half(),
        np.concatenate([PICTURE, np.ones((6, 9, 1))], -1),
        GREY,
        GREY[None],
        (PICTURE * 255).round().astype(np.int64),
        np.concatenate([PICTURE, np.ones((6, 9, 1))], -1).transpose(2, 0, 1),
        torch.tensor(GREY)[..., None],
    ],
    ids=[
        "bytes",
        "tensor of bytes",
        "colours first",
        "four colours",
        "grey",
        "grey first",
        "whole numbers",
        "four colours first",
        "grey last",
    ],
)
def test_pictures_come_in_many_kinds(image):
    shown = views.patches([1.0], image).images[0].get_array()
    np.testing.assert_allclose(shown, GREY, atol=0.003)


def test_a_pillow_picture_will_do():
    pillow = pytest.importorskip("PIL.Image")
    image = pillow.fromarray((PICTURE * 255).round().astype(np.uint8))
    np.testing.assert_allclose(views.patches([1.0], image).images[0].get_array(), GREY, atol=0.003)


def test_the_callers_axes_take_a_scene():
    ours = figure.Figure()
    one, two = ours.add_subplot(121), ours.add_subplot(122)
    assert views.patches([1.0], PICTURE, ax=one) is one
    assert views.edges([1.0], [(0, 1)], ax=two) is two


# --- edges ------------------------------------------------------------------------------------------------------------


def list_arrows(axes):
    return [x for x in axes.patches if isinstance(x, patch.FancyArrowPatch)]


def test_edges_have_their_weight_as_width_and_colour_and_point_to_the_second():
    at = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]])
    axes = views.edges([0.9, 0.3], [(0, 1), (2, 1)], at, labels=["a", "西安", "a name"])
    weak, strong = list_arrows(axes)
    assert strong.get_linewidth() == pytest.approx(4.0)
    assert weak.get_linewidth() == pytest.approx(0.3 + 3.7 / 3)
    # the darker the more, on white
    assert sum(strong.get_edgecolor()[:3]) < sum(weak.get_edgecolor()[:3])
    ramp = matplotlib.colormaps["cividis_r"]
    np.testing.assert_allclose(weak.get_edgecolor(), ramp(1 / 3), atol=1e-9)
    # in a square around the middle, without being turned or stretched
    assert strong._posA_posB[0] == pytest.approx((-1, -0.5))
    assert strong._posA_posB[1] == pytest.approx((1, -0.5))
    assert weak._posA_posB[0] == pytest.approx((0, 0.5))
    assert [text.get_text() for text in axes.texts] == ["a", "西安", "a name"]


def test_loops_are_rings_and_listed():
    axes = views.edges([0.5, 0.25, 1.0], [(0, 0), (1, 1), (0, 1)], labels=["x", "y"])
    rings = [x for x in axes.patches if isinstance(x, patch.Circle)]
    assert len(rings) == 2
    assert len(list_arrows(axes)) == 1
    assert axes.get_title(loc="left") == "self-loops: x 0.50, y 0.25"
    many = views.edges(np.arange(1, 10) / 10, [(k, k) for k in range(9)])
    title = many.get_title(loc="left").replace("\n", " ")
    assert title == "self-loops: 8 0.90, 7 0.80, 6 0.70, 5 0.60, 4 0.50, 3 0.40 and 3 more"


def test_of_too_many_edges_the_strongest_are_drawn(monkeypatch):
    # by the name of the module: the package has the function under it
    monkeypatch.setattr(sys.modules["regard.views.figures.edges"], "MOST", 3)
    weights = [0.1, 0.9, 0.2, 0.8, 0.7]
    axes = views.edges(weights, np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]))
    assert axes.get_title(loc="left") == "the 3 strongest of 5 edges"
    places = [np.pi / 2 - 2 * np.pi * k / 5 for k in range(5)]
    starts = [(np.cos(places[k]), np.sin(places[k])) for k in (4, 3, 1)]
    for arrow, start in zip(list_arrows(axes), starts, strict=True):
        assert arrow._posA_posB[0] == pytest.approx(start)


def test_two_thousand_is_the_limit():
    from regard.views.figures.edges import MOST

    assert MOST == 2000


def test_two_rows_of_an_array_are_from_and_to_and_a_list_has_pairs():
    square = [[0, 1], [2, 3]]
    places = [(np.cos(turn), np.sin(turn)) for turn in np.pi / 2 - np.pi / 2 * np.arange(4)]
    for given, (start, stop) in [(np.array(square), (0, 2)), (torch.tensor(square), (0, 2)), (square, (0, 1))]:
        first, _ = list_arrows(views.edges([0.1, 0.2], given))
        np.testing.assert_allclose(first._posA_posB, [places[start], places[stop]], atol=1e-9)


def test_edges_both_ways_pass_each_other():
    one, two = list_arrows(views.edges([0.5, 0.5], [(0, 1), (1, 0)]))
    assert one.get_connectionstyle().rad == two.get_connectionstyle().rad == 0.12
    (alone,) = list_arrows(views.edges([0.5], [(0, 1)]))
    assert alone.get_connectionstyle().rad == 0


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: views.patches("x", PICTURE), "weights must be a list of numbers, one for each patch."),
        (lambda: views.patches(np.ones((2, 2)), PICTURE),
         "weights must be one query's, of shape (patches,), got (2, 2)."),
        (lambda: views.patches([], PICTURE), "weights must be one query's, of shape (patches,), got (0,)."),
        (lambda: views.patches([1.0] * 6, PICTURE),
         "6 patches are no square: give grid=(rows, columns), and skip= for other tokens."),
        (lambda: views.patches([1.0] * 6, PICTURE, (2, 2)), "grid must be (rows, columns) of 6 patches, got (2, 2)."),
        (lambda: views.patches([1.0] * 6, PICTURE, 6), "grid must be (rows, columns) of 6 patches, got 6."),
        (lambda: views.patches([1.0] * 6, PICTURE, skip=6), "skip must leave a patch of the 6 weights, got 6."),
        (lambda: views.patches([1.0], "a.png"), "image must be an array of pixels or a PIL image."),
        (lambda: views.patches([1.0], np.ones((2, 3, 5))),
         "image must be (height, width), or that with 3 or 4 colours, got (2, 3, 5)."),
        (lambda: views.patches([1.0], PICTURE * 2 - 1),
         "image must be fractions from 0 to 1 or whole numbers from 0 to 255: undo its normalisation."),
        (lambda: views.edges("x", [(0, 1)]), "weights must be a list of numbers, one for each edge."),
        (lambda: views.edges([1.0, 2.0], [(0, 1)]),
         "weights must be one number for each of the 1 edges, got shape (2,)."),
        (lambda: views.edges([], []), "pairs must have an edge at least: there is nothing to draw."),
        (lambda: views.edges([1.0], [(0, -1)]), "pairs must be whole numbers of nodes, 0 or more, got -1."),
        (lambda: views.edges([1.0], [(0, 0.5)]), "pairs must be whole numbers of nodes, 0 or more, got 0.5."),
        (lambda: views.edges([np.nan], [(0, 1)]), "weights must be finite: an edge has no width otherwise."),
        (lambda: views.edges([1.0], [(0, 1)], "here"), "positions must be numbers, two for each node."),
        (lambda: views.edges([1.0], [(0, 1)], [(0, 0)]),
         "positions must be finite and (2, 2), a place for each node, got (1, 2)."),
        (lambda: views.edges([1.0], [(0, 1)], labels=["a"]), "labels must be 2, one for each place, got 1."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
