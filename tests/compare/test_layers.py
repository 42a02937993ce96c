"""The layers that are compared: against sums by hand, torch's own cells and `attend`."""

import math

import pytest
import torch

from regard import RegardError, attend
from regard.compare.layers import Convolution, LinearAttention, Recurrence, WindowedAttention
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


def test_a_walk_takes_one_step_at_a_time():
    walk = Recurrence(6, "rnn").double().walk(ROWS[:, :2])
    assert [state.shape for state in walk] == [(2, 6)] * 2


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
