"""Digests of data: other data have another digest, whatever they are, and the same data the same."""

from __future__ import annotations

import itertools
import pathlib
import random
import tracemalloc
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


@dataclass(frozen=True)
class Files(Sequence):
    """Examples in files, by their names."""

    names: tuple[str, ...]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, number):
        return pathlib.Path(self.names[number]).read_bytes()


def test_what_names_its_files_is_told_by_their_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"cat")
    before = digest_data(Files((str(tmp_path / "a"),)))
    (tmp_path / "a").write_bytes(b"dog")
    assert digest_data(Files((str(tmp_path / "a"),))) != before


def test_a_whole_that_is_more_than_its_items_says_what_else_it_is():
    class Graph(list):
        edges = ((0, 1),)

    parts = split_by_masks(Graph("ab"), {"train": [1, 0], "valid": [0, 1]})
    with pytest.raises(RegardError) as error:
        digest_data(*parts)
    assert str(error.value) == (
        "data is parts of one Graph, of which there is no digest: make it a dataclass, whose fields say all of it."
    )


def test_views_that_are_conjugate_or_negative_are_told_by_their_numbers():
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert digest_data(x.conj()) == digest_data(x.conj().resolve_conj()) != digest_data(x)
    assert digest_data(x.conj().imag) == digest_data(-x.imag) != digest_data(x.imag)


def test_pictures_of_pil_are_told_by_pixels_mode_and_palette():
    image = pytest.importorskip("PIL.Image")
    found = [image.new(mode, (4, 3)) for mode in ("L", "P", "RGB", "HSV", "RGBA", "CMYK", "1")]
    found += [image.new("L", (3, 4)), image.new("L", (4, 3), 1)]
    for colour in (1, 2):
        found.append(image.new("P", (4, 3)))
        found[-1].putpalette([colour] * 768)
    assert len({digest_data(one) for one in found}) == len(found)
    assert digest_data(image.new("L", (4, 3))) == digest_data(found[0])


def test_arrays_are_told_by_mask_and_fields():
    numbers = numpy.arange(3)
    masks = [numpy.ma.array(numbers, mask=mask) for mask in ([0, 1, 0], [0, 0, 0], False)]
    assert len({digest_data(one) for one in (numbers, *masks)}) == 3
    bits = numpy.zeros(2, "V8")
    kinds = ([("a", "<i4"), ("b", "<f4")], [("a", "<f4"), ("b", "<i4")], [("b", "<i4"), ("a", "<f4")])
    assert len({digest_data(bits.view(kind)) for kind in kinds}) == 3
    assert digest_data(memoryview(numbers)) == digest_data(numbers) != digest_data(numbers.view("u1"))


def test_no_list_has_the_digest_of_a_tensor_or_of_a_part():
    x = torch.eye(2).to_sparse().coalesce()
    assert digest_data(x) != digest_data(["sparse", [2, 2], x.indices(), x.values()])
    assert digest_data(Subset("ab", [1], is_whole=True)) != digest_data(["whole", "ab", [1]])


def test_an_array_on_disk_is_read_where_it_lies(tmp_path):
    numpy.lib.format.open_memmap(tmp_path / "a.npy", "w+", shape=(2**22,)).flush()
    tracemalloc.start()
    digest_data(numpy.load(tmp_path / "a.npy", mmap_mode="r"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20 < 2**22 * 8


def test_digests_of_earlier_versions_are_made_as_they_were():
    before = "0123456789abcdef"
    assert digest_again(before, [1, "a"]) == digest_again(before, [1, "a"]) != digest_data([1, "a"])
    # sha256sum of ([1, 'a'],)
    assert digest_again(before, [1, "a"]) == "148d69c6a7b554ad"
    assert digest_again(digest_data([2]), [1, "a"]) == digest_data([1, "a"])


def test_what_has_no_bytes_is_refused():
    meta = "tensor that is quantized, nested or meta"
    for strange, what in (
        *((object(), "object"), ({1, 2}, "set"), (numpy.array([object()]), "ndarray")),
        *((Picture, "type"), (torch.empty(2, device="meta"), meta)),
    ):
        with pytest.raises(RegardError) as error:
            digest_data([strange])
        assert str(error.value) == (
            f"data has a {what}, of which there is no digest: give texts, numbers, tensors or arrays."
        )
