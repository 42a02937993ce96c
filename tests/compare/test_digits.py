"""Digits by attention and by convolution: what is learned from, what is tested by, and what both are made of."""

import json
import sys

import pytest
import torch
from torch.nn import functional

from regard import RegardError
from regard.compare.kinds import ATTENTION, CONV
from regard.compare.meters.learning import Reader, Recipe
from regard.compare.parts import digits
from regard.compare.parts.digits import (
    Course,
    PlaneConvolution,
    count_viewer,
    make_viewer,
    match_viewer,
    measure_digits,
)
from regard.compare.settings import Dimensions, Settings
from tests.compare.sample import ignore


def test_every_beginning_has_its_share_of_every_class():
    pytest.importorskip("sklearn")
    patches, labels = digits.load_images()
    assert (patches.shape, len(labels)) == ((1797, 16, 4), 1797)
    share = labels.bincount() / len(labels)
    orders = [digits.order_images(labels, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert orders[0].equal(orders[1])
    assert not orders[0].equal(orders[2])
    for order in orders:
        assert order.sort().values.equal(torch.arange(1797))
        for count in (50, 100, 200, 400, 800, 1500):
            assert (labels[order[:count]].bincount(minlength=10) - count * share).abs().max() < 1.01
        assert len(order[digits.MOST :]) == 297


@torch.no_grad()
def test_patches_are_squares_of_the_image_in_their_order():
    datasets = pytest.importorskip("sklearn.datasets")
    patches, _ = digits.load_images()
    images = torch.tensor(datasets.load_digits().images, dtype=torch.float32)
    image = ((images - images.mean()) / images.std())[7]
    squares = [image[y : y + 2, x : x + 2].flatten() for y in range(0, 8, 2) for x in range(0, 8, 2)]
    torch.testing.assert_close(patches[7], torch.stack(squares))
    # a model takes them with a position each, and answers by their mean
    model = make_viewer(CONV, Dimensions(width=4), depth=1).eval()
    rows = patches[7] @ model.embedding.weight.T + model.embedding.bias + model.position.P[0]
    torch.testing.assert_close(model(patches[7:8]), model.head(model.blocks(rows[None]).mean(1)))


@torch.no_grad()
def test_the_convolution_lies_in_the_plane():
    torch.manual_seed(0)
    layer, rows = PlaneConvolution(width=3), torch.randn(2, 16, 3)
    padded = functional.pad(rows.view(2, 4, 4, 3), (0, 0, 1, 1, 1, 1))
    for y in range(4):
        for x in range(4):
            seen = padded[:, y : y + 3, x : x + 3]
            expected = torch.einsum("bijc,ocij->bo", seen, layer.conv.weight)
            torch.testing.assert_close(layer(rows)[:, 4 * y + x], expected)


def test_both_have_about_as_many_parameters():
    for width in (16, 32):
        dims = Dimensions(width=width)
        wanted = count_viewer(ATTENTION, dims, 2)
        assert wanted == sum(weight.numel() for weight in make_viewer(ATTENTION, dims, 2).parameters())
        assert abs(count_viewer(CONV, match_viewer(CONV, dims, 2), 2) / wanted - 1) < 0.05
        assert match_viewer(ATTENTION, dims, 2).width == width


def test_digits_are_measured_by_seed_and_number_of_images(monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setitem(digits.COURSES, False, Course((50, 1500), 2, Recipe(5), width=16, depth=1))
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    told = []
    made = [measure_digits(Settings(seed=3), told.append) for _ in range(2)]
    assert torch.rand(2).equal(expected)
    assert made[0]["rows"] == made[1]["rows"]
    assert json.loads(json.dumps(made[0], allow_nan=False)) == made[0]
    found = [(row["kind"], row["seed"], row["images"], row["count"]) for row in made[0]["rows"]]
    assert found == [(kind, seed, n, 297) for kind in ("conv", "attention") for seed in (3, 4) for n in (50, 1500)]
    assert told[-1] == 1


def test_few_images_are_of_the_many_and_none_is_of_the_test(monkeypatch):
    # each image is full of its own number
    images = torch.arange(30.0)[:, None, None].expand(30, 16, 4)
    monkeypatch.setattr(digits, "load_images", lambda: (images, torch.arange(30) % 3))
    monkeypatch.setattr(digits, "MOST", 18)
    monkeypatch.setitem(digits.COURSES, True, Course((3, 9, 18), 2, Recipe(8), width=4, depth=1))
    forward, shown = Reader.forward, {}

    def watch(self, some):
        shown.setdefault(self, {True: set(), False: set()})[self.training].update(some[:, 0, 0].int().tolist())
        return forward(self, some)

    monkeypatch.setattr(Reader, "forward", watch)
    made = measure_digits(Settings(is_quick=True), ignore)
    # both kinds of one size come one after the other
    entries = list(shown.values())
    entries = [entries[6 * seed + 2 * size + kind] for kind in range(2) for seed in range(2) for size in range(3)]
    learned, tested = [entry[True] for entry in entries], [entry[False] for entry in entries]
    # two kinds, each with two seeds
    assert [len(own) for own in learned] == [row["images"] for row in made["rows"]] == 4 * [3, 9, 18]
    for at in range(0, 12, 3):
        few, more, most = learned[at : at + 3]
        assert few < more < most
        # nothing is asked but the rest, and all of it
        assert tested[at : at + 3] == 3 * [set(range(30)) - most]
    # the kinds learn from the same, the seeds do not
    assert learned[:6] == learned[6:]
    assert learned[0] != learned[3]


def test_a_short_training_tells_most_digits_right(monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setitem(digits.COURSES, True, Course((400,), 1, Recipe(80, rate=2e-2), depth=1))
    found = {row["kind"]: row["accuracy"] for row in measure_digits(Settings(is_quick=True), ignore)["rows"]}
    assert found["conv"] > 0.7
    assert found["attention"] > 0.45


def test_it_says_what_digits_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(RegardError) as error:
        measure_digits(Settings(), ignore)
    assert str(error.value) == "digits come with scikit-learn: pip install scikit-learn, or leave the part out."
