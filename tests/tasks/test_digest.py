"""Digests of data: other data have another digest, whatever they are, and the same data the same."""

from __future__ import annotations

import itertools
import random
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import pytest
import torch

from regard import RegardError
from regard.data.split import split_by_masks
from regard.data.subset import Subset
from regard.tasks.training.digest import digest_again, digest_data


@dataclass(frozen=True)
class Picture:
    pixels: torch.Tensor
    label: int


def test_image_tensors_of_one_different_value_have_different_digests():
    """Larger than what is printed in full, where `repr` shows the corners alone."""
    images = torch.zeros(4, 3, 64, 64)
    found = {digest_data(images)}
    chance = random.Random(0)
    for _ in range(50):
        other = images.clone()
        place = tuple(chance.randrange(size) for size in other.shape)
        # the smallest number there is
        other[place] = torch.finfo(torch.float32).tiny * 2.0**-23
        assert repr(other) == repr(images)
        found.add(digest_data(other))
    assert len(found) == 51


def test_what_differs_in_anything_has_another_digest():
    x = torch.arange(24.0)
    different = [
        x, x.double(), x.half(), x.bfloat16(), x.int(), x.view(2, 12), x.view(12, 2), x.view(2, 12).T, -x, x[:12],
        x.view(4, 6).to_sparse(), x.numpy(), x.numpy().astype(">f4"), x.tolist(), list(range(24)), torch.zeros(0),
        torch.zeros(0, 3), torch.tensor(0.0), torch.tensor(-0.0), torch.zeros(1), 0.0, -0.0, 0, False, None, "", "0",
        b"0", [], [[]], [0], ["0"], ["", ""], ["0", "1"], ["01"], ["0", ["1"]], [["0"], "1"], [1, 2], [12],
        [2**70, 1], {"a": 1}, {"a": 2}, {"b": 1}, {"a": {"b": 1}}, Picture(x, 1), Picture(x, 2), Picture(-x, 1),
        (x, 1), [Picture(x, 1)], [Picture(x, 1)] * 2, numpy.zeros((2, 3), numpy.uint8),
        numpy.zeros((3, 2), numpy.uint8),
    ]  # fmt: skip
    digests = [digest_data(one) for one in different]
    assert [
        (different[i], different[j])
        for i, j in itertools.combinations(range(len(digests)), 2)
        if digests[i] == digests[j]
    ] == []
    # parts are told from one another
    assert digest_data([1], [2]) != digest_data([1, 2]) != digest_data([2], [1])


def test_the_same_data_have_the_same_digest_however_they_are_held():
    x = torch.arange(24.0).view(4, 6)
    for same in (x.clone(), x.T.contiguous().T, torch.stack([x, x], -1)[..., 0], x.requires_grad_()):
        assert digest_data(same) == digest_data(x)
    assert digest_data({"a": 1, "b": 2}) == digest_data({"b": 2, "a": 1})
    assert digest_data(["a", "b"]) == digest_data(("a", "b")) == digest_data(Subset("xbya", [3, 1]))


def test_what_is_made_lazily_is_digested_one_by_one():
    made = []

    class Lazy(Sequence):
        def __len__(self):
            return 3

        def __getitem__(self, number):
            # no more than the one before is in memory
            assert sum(one() is not None for one in made) <= 1
            picture = Picture(torch.full((2,), float(range(3)[number])), number)
            made.append(weakref.ref(picture.pixels))
            return picture

    pictures = [Picture(torch.full((2,), float(number)), number) for number in range(3)]
    assert digest_data(Lazy()) == digest_data(pictures)
    assert digest_data(Subset(Lazy(), [2, 0])) == digest_data([pictures[2], pictures[0]])
    assert len(made) == 5


def test_parts_of_one_graph_are_told_by_the_graph_and_the_masks():
    nodes = torch.randn(5, 3)
    masks = {"train": [1, 1, 0, 0, 0], "valid": [0, 0, 1, 0, 0], "test": [0, 0, 0, 1, 1]}
    parts = split_by_masks(nodes, masks)
    assert digest_data(*parts) == digest_data(*split_by_masks(nodes.clone(), masks))
    other = nodes.clone()
    # of no mask of training, and yet what all nodes are beside
    other[4] += 1
    assert digest_data(parts.train) != digest_data(split_by_masks(other, masks).train)
    moved = split_by_masks(nodes, masks | {"train": [1, 0, 0, 0, 0]})
    assert digest_data(parts.train) != digest_data(moved.train)


def test_digests_of_earlier_versions_are_made_as_they_were():
    before = "0123456789abcdef"
    assert digest_again(before, [1, "a"]) == digest_again(before, [1, "a"]) != digest_data([1, "a"])
    # sha256sum of ([1, 'a'],)
    assert digest_again(before, [1, "a"]) == "148d69c6a7b554ad"
    assert digest_again(digest_data([2]), [1, "a"]) == digest_data([1, "a"])


def test_what_has_no_bytes_is_refused():
    for strange, name in ((object(), "object"), ({1, 2}, "set"), (numpy.array([object()]), "ndarray")):
        with pytest.raises(RegardError) as error:
            digest_data([strange])
        assert str(error.value) == (
            f"data has a {name}, of which there is no digest: give texts, numbers, tensors or arrays."
        )
