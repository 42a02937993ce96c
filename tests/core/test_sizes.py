"""Sizes and tiles: what broadcasts to the scores, how it is folded, and which part a tile takes."""

from dataclasses import FrozenInstanceError

import pytest
import torch

from regard.core import Sizes, Tile

FOLDED = Sizes(lead=(2, 3), h=4, g=2, n=5, m=7, d=11, c=11, e=13)
PLAIN = Sizes(lead=(), h=1, g=1, n=5, m=7, d=3, c=3, e=3, has_heads=False)
BATCH = Sizes(lead=(3,), h=1, g=1, n=5, m=7, d=3, c=3, e=3, has_heads=False)


@pytest.mark.parametrize(
    ("sizes", "b", "pairs"), [(FOLDED, 6, (2, 3, 4, 5, 7)), (PLAIN, 1, (5, 7)), (BATCH, 3, (3, 5, 7))], ids=str
)
def test_what_the_caller_sees(sizes, b, pairs):
    assert sizes.b == b
    assert sizes.pairs == pairs
    assert sizes.whole().shape == (b, sizes.h, 5, 7)


@pytest.mark.parametrize(
    ("sizes", "shape", "fits"),
    [
        (FOLDED, (), True), (FOLDED, (7,), True), (FOLDED, (1,), True), (FOLDED, (5, 7), True),
        (FOLDED, (4, 1, 7), True), (FOLDED, (3, 1, 5, 7), True), (FOLDED, (2, 1, 1, 1, 1), True),
        (FOLDED, (2, 3, 4, 5, 7), True), (FOLDED, (5,), False), (FOLDED, (7, 5), False), (FOLDED, (2, 5, 7), False),
        (FOLDED, (2, 4, 5, 7), False), (FOLDED, (1, 2, 3, 4, 5, 7), False), (FOLDED, (0,), False),
        (PLAIN, (5, 7), True), (PLAIN, (1, 5, 7), False), (BATCH, (3, 5, 7), True), (BATCH, (1, 1, 5, 7), False),
    ],
)  # fmt: skip
def test_what_broadcasts(sizes, shape, fits):
    assert sizes.takes(torch.zeros(shape)) == fits


@pytest.mark.parametrize("sizes", [FOLDED, PLAIN, BATCH], ids=str)
def test_folding_is_broadcasting(sizes):
    for keep in range(2 ** len(sizes.pairs)):
        # every way to leave axes at one, and every number of axes
        shape = [size if keep >> at & 1 else 1 for at, size in enumerate(sizes.pairs)]
        for skip in range(len(shape) + 1):
            if any(size > 1 for size in shape[:skip]):
                break
            tensor = torch.arange(float(torch.Size(shape).numel())).view(shape[skip:])
            folded = sizes.fold(tensor)
            assert folded.ndim == 4
            whole = tensor.expand(sizes.pairs).reshape(sizes.b, sizes.h, sizes.n, sizes.m)
            assert torch.equal(folded.expand(whole.shape), whole)


def test_folding_copies_only_where_it_must():
    tensor = torch.zeros(2, 3, 1, 5, 7)
    assert FOLDED.fold(tensor).data_ptr() == tensor.data_ptr()
    # one axis of two given: the other is written out, heads and the rest stay as they are
    assert FOLDED.fold(torch.zeros(2, 1, 1, 1, 7)).shape == (6, 1, 1, 7)


TILE = Tile(range(1, 3), range(1), range(2, 5), range(7))


def test_a_tile_has_its_indices():
    b, h, i, j = TILE.index()
    assert torch.broadcast_shapes(b.shape, h.shape, i.shape, j.shape) == TILE.shape == (2, 1, 3, 7)
    assert [x.flatten().tolist() for x in (b, h, i, j)] == [[1, 2], [0], [2, 3, 4], [0, 1, 2, 3, 4, 5, 6]]
    assert TILE.keys(range(4, 6)) == Tile(range(1, 3), range(1), range(2, 5), range(4, 6))
    assert all(x.device.type == "meta" for x in Tile(*([range(2)] * 4), torch.device("meta")).index())


@pytest.mark.parametrize("shape", [(6, 4, 5, 7), (1, 4, 5, 7), (6, 1, 1, 7), (6, 4, 5, 1), (1, 1, 1, 1)], ids=str)
def test_a_tile_takes_its_part(shape):
    tensor = torch.arange(float(torch.Size(shape).numel())).view(shape)
    tile = Tile(range(1, 3), range(3, 4), range(2, 5), range(7))
    expected = tensor.expand(6, 4, 5, 7)[1:3, 3:4, 2:5, 0:7]
    part = tile.slice(tensor)
    assert torch.equal(part.expand(expected.shape), expected)
    # a view: what is added to it arrives in the whole
    assert part.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_terms_sizes_and_tiles_are_frozen():
    for value, name in ((FOLDED, "n"), (TILE, "b")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 3)
