"""The quadratic bias against a loop over image cells, and what it is for: one head, one pixel."""

import pytest
import torch

from regard import attend
from regard.bias import Quadratic
from tests.terms import SAMPLE_SIZES
from tests.tolerances import assert_close


@pytest.mark.parametrize(("height", "width"), [(2, 3), (3, 2), (6, 1), (1, 6)])
def test_distance_is_taken_in_the_image(height, width):
    sizes = SAMPLE_SIZES[1]
    (sample,) = Quadratic.samples()
    tile = sizes.whole()
    made = Quadratic(height, width, sample.alpha, sample.centre).settle(sizes).tile(tile).expand(tile.shape)
    for h in tile.h:
        down, right = sample.centre[h].tolist()
        for i in tile.i:
            for j in tile.j:
                rows, columns = j // width - i // width, j % width - i % width
                expected = -sample.alpha[h].item() * ((rows - down) ** 2 + (columns - right) ** 2)
                assert made[0, h, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_a_steep_head_moves_the_image():
    # attention as convolution: a head that looks one cell to the right copies that cell
    image = torch.arange(12.0, dtype=torch.float64).view(1, 1, 12, 1)
    bias = Quadratic(3, 4, torch.tensor([200.0]).double(), torch.tensor([[0.0, 1.0]]).double())
    out = attend(torch.zeros_like(image), torch.zeros_like(image), image, bias=bias).view(3, 4)
    assert_close(out[:, :-1], image.view(3, 4)[:, 1:])
