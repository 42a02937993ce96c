"""ALiBi: the published slopes, and the penalty pair by pair."""

import pytest
import torch

from regard.bias import Alibi
from regard.bias.alibi import list_slopes
from tests.terms import SAMPLE_SIZES

WIDE = SAMPLE_SIZES[0]


def test_slopes_for_eight_heads_are_the_papers():
    assert list_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_slopes_for_twelve_heads_are_the_papers():
    # eight heads' own, then every other one of sixteen heads'
    between = [0.7071067811865476, 0.35355339059327379, 0.17677669529663689, 0.088388347648318447]
    assert list_slopes(12) == pytest.approx(list_slopes(8) + between, rel=1e-15)


@pytest.mark.parametrize("heads", range(1, 33))
def test_any_number_of_heads_has_its_slopes(heads):
    slopes = list_slopes(heads)
    assert len(slopes) == len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)


@pytest.mark.parametrize(
    ("bias", "slopes", "offset"),
    [
        (Alibi(), [1 / 16, 1 / 256], 2),
        (Alibi(offset=-4), [1 / 16, 1 / 256], -4),
        (Alibi(torch.tensor([0.3, 0.9], dtype=torch.float64), offset=1), [0.3, 0.9], 1),
    ],
    ids=repr,
)
def test_the_penalty_grows_with_distance(bias, slopes, offset):
    tile = WIDE.whole()
    made = bias.settle(WIDE).tile(tile).expand(tile.shape)
    for b in tile.b:
        for h in tile.h:
            for i in tile.i:
                for j in tile.j:
                    assert made[b, h, i, j].item() == pytest.approx(-slopes[h] * abs(i + offset - j), abs=1e-14)
