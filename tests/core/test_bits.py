"""Random bits that depend on a seed and a place alone, and dropout made of them."""

import pytest
import torch
from scipy.stats import chisquare, kstest

from regard import attend
from regard.core import Tile
from regard.core.bits import draw_seed, keep, mix, uniform
from regard.mask import Causal
from regard.score import Dot, Feature
from regard.weigh import Entmax, Relu, Softmax
from tests.layouts import cut
from tests.terms import cotangent
from tests.tolerances import assert_all_close

TILE = Tile(range(3), range(4), range(50), range(60))


def test_mix_is_lowbias32():
    # the published function on a few integers, in plain Python
    def lowbias32(x):
        x = ((x ^ (x >> 16)) * 0x7FEB352D) % 2**32
        x = ((x ^ (x >> 15)) * 0x846CA68B) % 2**32
        return x ^ (x >> 16)

    numbers = [0, 1, 2, 3, 12345, 2**31 - 1, 2**31, 2**32 - 1]
    assert mix(torch.tensor(numbers)).tolist() == [lowbias32(x) for x in numbers]


def test_mix_is_a_bijection():
    # all numbers that differ in their upper or in their lower half alone stay apart
    numbers = torch.cat([torch.arange(2**16), torch.arange(2**16) * 2**16])
    assert mix(numbers).unique().numel() == numbers.unique().numel()


def test_numbers_are_uniform():
    for seed in range(5):
        numbers = uniform(seed, TILE)
        assert numbers.shape == TILE.shape
        assert numbers.dtype == torch.float32
        assert numbers.min() > 0
        assert numbers.max() < 1
        assert kstest(numbers.flatten().double(), "uniform").pvalue > 1e-3


def unmix(x):
    """The number that `mix` takes to x: multiplication by odd numbers and shifted exclusive ors can be undone."""
    x ^= x >> 16
    x = x * pow(0x846CA68B, -1, 2**32) % 2**32
    x ^= x >> 15 ^ x >> 30
    x = x * pow(0x7FEB352D, -1, 2**32) % 2**32
    return x ^ x >> 16


@pytest.mark.parametrize("bits", [0, 2**32 - 1])
def test_the_ends_are_never_reached(bits):
    # the key at which the first query of this seed draws nothing but zeros, or nothing but ones
    row = mix(mix(mix(mix(torch.tensor(5))))).item()
    j = unmix((unmix(bits) - row) % 2**32)
    (number,) = uniform(5, Tile(range(1), range(1), range(1), range(j, j + 1))).flatten()
    assert abs(number - float(bits > 0)) < 1e-6
    assert 0 < number < 1
    # Gumbel noise, by which draws are made
    assert torch.log(-torch.log(number)).isfinite()


def test_a_place_has_its_number_whatever_the_tile():
    whole = uniform(7, TILE, salt=1)
    part = Tile(range(1, 3), range(2, 3), range(10, 21), range(33, 60))
    assert torch.equal(uniform(7, part, salt=1), whole[1:3, 2:3, 10:21, 33:60])


@pytest.mark.parametrize("axis", range(4), ids=["sequences", "heads", "queries", "keys"])
def test_neighbours_are_independent(axis):
    numbers = uniform(3, TILE).double() - 0.5
    size = TILE.shape[axis]
    one, other = numbers.narrow(axis, 0, size - 1), numbers.narrow(axis, 1, size - 1)
    # a product of two independent ones has mean 0 and deviation 1/12
    assert abs((one * other).mean().item()) < 4 / 12 / one.numel() ** 0.5


def test_symmetric_places_and_other_salts_differ():
    square = Tile(range(1), range(1), range(40), range(40))
    numbers = uniform(3, square)[0, 0]
    assert (numbers == numbers.T).sum() == 40
    assert (uniform(3, square) != uniform(3, square, salt=1)).double().mean() > 0.99
    assert (uniform(3, square) != uniform(4, square)).double().mean() > 0.99


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_what_survives_is_as_frequent_as_asked(dropout):
    count = 3 * 4 * 50 * 60
    for seed in range(5):
        kept = keep(seed, TILE, dropout).sum().item()
        assert chisquare([kept, count - kept], [count * (1 - dropout), count * dropout]).pvalue > 1e-3


def test_seeds_come_from_the_generator():
    one, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    seeds = [draw_seed(one) for _ in range(50)]
    assert seeds == [draw_seed(other) for _ in range(50)]
    assert len(set(seeds)) == 50
    assert all(0 <= seed < 2**31 for seed in seeds)


def run(weigh, score, dropout, seed, backend):
    noise = torch.Generator().manual_seed(9)
    rows = [torch.randn(3, 2, n, 4, generator=noise, dtype=torch.float64).requires_grad_() for n in (5, 7, 7)]
    chance = torch.Generator().manual_seed(seed)
    out = attend(*rows, score=score, weigh=weigh, mask=Causal(), dropout=dropout, generator=chance, backend=backend)
    return out.detach(), *torch.autograd.grad(out, rows, cotangent(out))


@pytest.mark.parametrize("layout", [(3, 2, 5, 7), (1, 1, 2, 3), (2, 1, 4, 1)], ids=str)
@pytest.mark.parametrize("score", [Dot(), Feature()], ids=repr)
@pytest.mark.parametrize("weigh", [Softmax(), Entmax(), Relu()], ids=repr)
def test_dropout_is_the_same_on_every_backend_and_tile(weigh, score, layout):
    expected = run(weigh, score, 0.4, 1, "reference")
    names = ["output", "gradient of query", "gradient of key", "gradient of value"]
    with cut(*layout):
        assert_all_close(run(weigh, score, 0.4, 1, "tiled"), expected, names)
        other = run(weigh, score, 0.4, 2, "tiled")
    assert not torch.allclose(other[0], expected[0])


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_dropout_zeroes_weights_and_raises_the_rest(backend):
    rows = torch.zeros(2, 2, 30, 1)
    value = torch.eye(30).expand(2, 2, 30, 30)
    chance = torch.Generator().manual_seed(0)
    weights = attend(rows, rows, value, dropout=0.25, generator=chance, backend=backend)
    # equal scores weigh 1/30 each: what survives is 1/30 over the keep-probability
    dropped = weights == 0
    assert torch.allclose(weights[~dropped], torch.tensor(1 / 30 / 0.75))
    assert dropped.double().mean().item() == pytest.approx(0.25, abs=0.03)
    # heads and sequences have masks of their own
    assert not torch.equal(dropped[0], dropped[1])
    assert not torch.equal(dropped[:, 0], dropped[:, 1])


def test_without_dropout_no_random_number_is_drawn():
    rows = torch.randn(1, 2, 5, 3)
    before = torch.get_rng_state()
    attend(rows, rows, rows)
    assert torch.equal(torch.get_rng_state(), before)
    attend(rows, rows, rows, dropout=0.1)
    assert not torch.equal(torch.get_rng_state(), before)
