"""T5's buckets against an independent loop, and the numbers looked up by them."""

import math

import pytest
import torch

from regard.bias import Relative
from tests.terms import SAMPLE_SIZES

WIDE = SAMPLE_SIZES[0]


def bucket(ahead: int, buckets: int, max_distance: int, two_sided: bool) -> int:
    """The bucket of one signed distance, as the paper's text has it."""
    first, far = 0, max(-ahead, 0)
    if two_sided:
        buckets //= 2
        first, far = buckets if ahead > 0 else 0, abs(ahead)
    exact = buckets // 2
    if far < exact:
        return first + far
    shared = math.log(far / exact) / math.log(max_distance / exact) * (buckets - exact)
    # a whole number may come out a hair below itself
    return first + min(exact + math.floor(shared + 1e-6), buckets - 1)


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (32, 64), (8, 20), (6, 16), (64, 1000), (4, 2)])
@pytest.mark.parametrize("two_sided", [True, False])
def test_buckets_are_those_of_a_loop(buckets, max_distance, two_sided):
    if not two_sided and max_distance <= buckets // 2:
        max_distance = buckets
    bias = Relative(torch.zeros(1, buckets), max_distance=max_distance, two_sided=two_sided)
    aheads = range(-1100, 1101)
    expected = [bucket(ahead, buckets, max_distance, two_sided) for ahead in aheads]
    assert bias.bucket(torch.tensor(aheads)).tolist() == expected
    assert set(expected) == set(range(buckets)) - ({buckets // 2} if two_sided else set())


def test_t5s_own_boundaries():
    # the distances at which t5-small enters a new bucket behind the query
    found = Relative(torch.zeros(1, 32)).bucket(-torch.arange(200))
    entered = [far for far in range(1, 200) if found[far] != found[far - 1]]
    assert entered == [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]


@pytest.mark.parametrize("bias", Relative.samples(), ids=repr)
def test_numbers_come_from_the_table(bias):
    tile = WIDE.whole()
    made = bias.settle(WIDE).tile(tile).expand(tile.shape)
    offset = 2 if bias.offset is None else bias.offset
    for h in tile.h:
        for i in tile.i:
            for j in tile.j:
                at = bucket(j - i - offset, bias.table.shape[1], bias.max_distance, bias.two_sided)
                assert (made[:, h, i, j] == bias.table[h, at]).all()


def test_later_keys_share_a_bucket_on_one_side():
    bias = Relative(torch.zeros(1, 4), max_distance=9, two_sided=False)
    assert bias.bucket(torch.arange(5)).tolist() == [0, 0, 0, 0, 0]
