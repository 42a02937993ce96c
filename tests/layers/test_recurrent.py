"""A GRU over padded sequences is a GRU over each of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard import RegardError
from regard.layers import GRULayers
from tests.layers.padded import LENS, D, assert_unread, differentiate, draw, find_padding, shake

PADDING = find_padding(LENS, 7)


@pytest.mark.parametrize("both", [True, False], ids=["both ways", "one way"])
def test_each_sequence_is_as_alone(both):
    layer, X = shake(GRULayers(D, 2, is_bidirectional=both)), draw(4, 7, D)
    oracle = nn.GRU(D, D // 2 if both else D, 2, batch_first=True, bidirectional=both).double()
    oracle.load_state_dict(layer.rnn.state_dict())

    def alone(X: Tensor) -> Tensor:
        out = torch.zeros_like(X)
        for i, length in enumerate(LENS.tolist()):
            if length:
                out[i, :length] = oracle(X[i : i + 1, :length])[0][0]
        return out

    found, expected = differentiate(layer, lambda x: layer(x, LENS), X), differentiate(oracle, alone, X)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert not found[0][PADDING].any()
    torch.testing.assert_close(layer(X), layer(X, torch.full((4,), 7)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_padding_is_unread(rate):
    layer = shake(GRULayers(D, 2, rate))
    assert_unread(layer, lambda x: layer(x, LENS), PADDING)


def test_nothing_at_all():
    layer = GRULayers(D).double()
    assert layer(draw(0, 7, D), LENS[:0]).shape == (0, 7, D)
    assert layer(draw(4, 0, D), torch.zeros(4, dtype=torch.int64)).shape == (4, 0, D)
    assert not layer(draw(2, 3, D), torch.tensor([0, 0])).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GRULayers(7), "GRULayers num_hiddens must be even where is_bidirectional, got 7."),
        (lambda: GRULayers(6, 0), "GRULayers num_layers must be at least 1, got 0."),
        (lambda: GRULayers(6, 1, 1.0), "GRULayers dropout must lie in [0, 1), got 1.0."),
        (
            lambda: GRULayers(6)(torch.ones(2, 3, 5)),
            "GRULayers X must be (batch, positions, num_hiddens=6), got shape (2, 3, 5).",
        ),
        (
            lambda: GRULayers(6)(torch.ones(2, 3, 6), torch.tensor([1, 9])),
            "GRULayers valid_lens must be at most 3 (the number of keys), got 9.",
        ),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
