"""The kinds: layers against sums by hand, torch's own cells and `attend`; parameters, and widths that match them."""

import math

import pytest
import torch

from regard import RegardError, attend
from regard.compare import kinds
from regard.compare.kinds import (
    KINDS,
    Convolution,
    LinearAttention,
    Recurrence,
    WindowedAttention,
    count_parameters,
    match_width,
)
from regard.compare.settings import Dimensions
from regard.score import Feature
from regard.weigh import Sum
from tests.tolerances import assert_close

ROWS = torch.randn(2, 11, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_a_convolution_is_a_sum_over_neighbours(kernel):
    layer = Convolution(6, kernel).double()
    out = layer(ROWS)
    for i in range(11):
        near = range(max(i - kernel // 2, 0), min(i + kernel // 2, 10) + 1)
        assert_close(out[:, i], sum(ROWS[:, j] @ layer.conv.weight[:, :, j - i + kernel // 2].T for j in near))


def test_a_plain_recurrence_is_tanh_of_token_and_state():
    layer = Recurrence(6, "rnn").double()
    state = torch.zeros(2, 6, dtype=torch.float64)
    for i, out in enumerate(layer(ROWS).unbind(1)):
        state = torch.tanh(ROWS[:, i] @ layer.rnn.weight_ih_l0.T + state @ layer.rnn.weight_hh_l0.T)
        assert_close(out, state)


def test_a_gated_recurrence_mixes_the_old_state_and_a_new_one():
    # as Cho and others wrote it, with the reset gate outside of the product as torch has it
    layer = Recurrence(6, "gru").double()
    state = torch.zeros(2, 6, dtype=torch.float64)
    for i, out in enumerate(layer(ROWS).unbind(1)):
        given, kept = ROWS[:, i] @ layer.rnn.weight_ih_l0.T, state @ layer.rnn.weight_hh_l0.T
        (r_x, z_x, n_x), (r_h, z_h, n_h) = given.chunk(3, -1), kept.chunk(3, -1)
        update = torch.sigmoid(z_x + z_h)
        state = (1 - update) * torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h) + update * state
        assert_close(out, state)


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_a_walk_passes_through_the_same_states(cell):
    layer = Recurrence(6, cell).double()
    assert_close(torch.stack(list(layer.walk(ROWS)), 1), layer(ROWS))


@pytest.mark.parametrize(("window", "near"), [(2, 1), (3, 1), (4, 2), (9, 4), (40, 20)])
def test_windowed_attention_is_attention_with_a_mask(window, near):
    layer = WindowedAttention(6, 2, window).double()
    places = torch.arange(11)
    allowed = (places[:, None] - places).abs() <= near
    query, key, value = (split(w(ROWS)) for w in (layer.attention.W_q, layer.attention.W_k, layer.attention.W_v))
    scores = (query @ key.mT / math.sqrt(3)).masked_fill(~allowed, -math.inf)
    assert_close(layer(ROWS), layer.attention.W_o(join(scores.softmax(-1) @ value)))
    assert_close(layer(ROWS), layer.attention.W_o(join(attend(query, key, value, mask=allowed))))


@pytest.mark.parametrize("n", [1, 11, 40])
def test_linear_attention_is_attend_over_features(n):
    # few rows and many: the projections are made one by one, or together
    rows = torch.randn(2, n, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    layer = LinearAttention(6, 2).double()
    query, key, value = (split(w(rows)) for w in (layer.W_q, layer.W_k, layer.W_v))
    assert_close(layer(rows), layer.W_o(join(attend(query, key, value, score=Feature(), weigh=Sum()))))


def test_no_layer_has_a_bias():
    layers = Convolution(6, 3), Recurrence(6, "gru"), WindowedAttention(6, 2, 4), LinearAttention(6, 2)
    for layer in layers:
        assert not any("bias" in name for name, _ in layer.named_parameters())


def split(rows):
    return rows.reshape(*rows.shape[:2], 2, 3).transpose(1, 2)


def join(rows):
    return rows.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("Recurrence cell must be one of 'rnn', 'gru', got 'lstm'.", lambda: Recurrence(6, "lstm")),
        ("WindowedAttention window must be at least 2, got 1.", lambda: WindowedAttention(6, 2, 1)),
        ("LinearAttention width=6 must be a multiple of heads=4.", lambda: LinearAttention(6, 4)),
        ("LinearAttention width=6 must be a multiple of heads=0.", lambda: LinearAttention(6, 0)),
    ],
)
def test_what_cannot_be_built_is_named(message, build):
    with pytest.raises(RegardError) as error:
        build()
    assert str(error.value) == message


def test_a_kernel_that_has_no_middle_is_refused():
    with pytest.raises(RegardError, match="kernel"):
        Convolution(6, 4)


# --- parameters -------------------------------------------------------------------------------------------------------


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


def test_kinds_of_other_packages_are_found_by_their_names(monkeypatch):
    monkeypatch.setattr(kinds, "find_plugins", lambda group: {"conv": "regard.compare.kinds:CONV"})
    assert kinds.load_kinds() == {"conv": KINDS["conv"]}


@pytest.mark.parametrize(("name", "value"), [("other", "CONV"), ("conv", "Convolution")])
def test_what_is_declared_wrongly_is_named(monkeypatch, name, value):
    monkeypatch.setattr(kinds, "find_plugins", lambda group: {name: f"regard.compare.kinds:{value}"})
    with pytest.raises(RegardError) as error:
        kinds.load_kinds()
    assert str(error.value) == (
        f"entry point regard.kinds {name}=regard.compare.kinds:{value} must be a Kind of that name: mend or remove the"
        " package that declares it."
    )
