"""The kinds: how many parameters they have, and widths that make these about equal."""

import pytest
import torch

from regard import RegardError
from regard.compare.kinds import KINDS, Dimensions, count_parameters, match_width


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("width", [32, 64, 128])
def test_parameters_are_so_many_squares_of_the_width(name, width):
    for kernel in (3, 5, 7):
        squares = {"conv": kernel, "rnn": 2, "gru": 6, "attention": 4, "windowed": 4, "linear": 4}[name]
        dims = Dimensions(width, kernel)
        assert count_parameters(KINDS[name], dims) == squares * width**2
        # and they are those of a real layer, not of one on no device
        assert sum(x.numel() for x in KINDS[name].build(dims).parameters()) == squares * width**2


def test_counting_draws_no_random_numbers():
    before = torch.get_rng_state()
    count_parameters(KINDS["gru"], Dimensions())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("width", [64, 96, 128, 256, 512])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_matched_widths_have_about_as_many_parameters(name, width, kernel):
    dims = Dimensions(width, kernel)
    wanted = count_parameters(KINDS["attention"], dims)
    matched = match_width(KINDS[name], dims, wanted)
    assert (matched.kernel, matched.heads, matched.window) == (dims.kernel, dims.heads, dims.window)
    step = matched.heads if KINDS[name].has_heads else 2
    assert matched.width % step == 0
    # the nearest there is
    mine = abs(count_parameters(KINDS[name], matched) - wanted)
    for near in (matched.width - step, matched.width + step):
        if near > 0:
            assert mine <= abs(count_parameters(KINDS[name], Dimensions(near, kernel)) - wanted)
    assert mine / wanted < 0.05


def test_attention_is_matched_by_itself():
    assert match_width(KINDS["attention"], Dimensions(64), 4 * 64**2).width == 64


def test_few_parameters_still_have_a_width():
    assert match_width(KINDS["gru"], Dimensions(64, heads=4), 1).width == 2
    assert match_width(KINDS["linear"], Dimensions(64, heads=4), 1).width == 4


@pytest.mark.parametrize("wanted", [0, -5])
def test_no_parameters_are_refused(wanted):
    with pytest.raises(RegardError) as error:
        match_width(KINDS["gru"], Dimensions(), wanted)
    assert str(error.value) == f"match_width wanted must be at least 1, got {wanted}."


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [1, 2, 9])
def test_tokens_go_in_and_as_many_come_out(name, n):
    out = KINDS[name].build(Dimensions(8, heads=2, window=4))(torch.ones(3, n, 8))
    assert out.shape == (3, n, 8)
    assert out.isfinite().all()


def test_names_are_those_they_are_found_by():
    assert all(kind.name == name for name, kind in KINDS.items())
    assert len({kind.label for kind in KINDS.values()}) == len(KINDS)
    assert all(set(kind.powers) <= {"n", "d", "k"} for kind in KINDS.values())


def test_powers_and_formulas_are_of_one_mind():
    for kind in KINDS.values():
        if kind.mixing is None:
            continue
        once = kind.mixing(Dimensions(32, 3), 40)
        grown = {"n": kind.mixing(Dimensions(32, 3), 80), "d": kind.mixing(Dimensions(64, 3), 40)}
        for axis, more in grown.items():
            assert more == once * 2 ** kind.powers[axis]
        assert kind.mixing(Dimensions(32, 9), 40) == once * 3 ** kind.powers.get("k", 0)
