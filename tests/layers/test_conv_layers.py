"""Convolutions over padded sequences are convolutions over each of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard import RegardError
from regard.layers import ConvLayers
from tests.layers.padded import LENS, D, assert_unread, differentiate, draw, find_padding, shake

PADDING = find_padding(LENS, 7)


def run_alone(layer: ConvLayers, rows: Tensor, norm_first: bool) -> Tensor:
    """One sequence without padding, (n, d), by torch's functions."""
    for conv, add in zip(layer.convs, layer.addnorms, strict=True):

        def norm(x: Tensor, ln=add.ln) -> Tensor:
            return functional.layer_norm(x, (D,), ln.weight, ln.bias, ln.eps)

        inner = norm(rows) if norm_first else rows
        side = conv.weight.shape[-1] // 2
        inner = functional.pad(inner.T[None], (side, side))
        inner = functional.gelu(functional.conv1d(inner, conv.weight, conv.bias))[0].T
        rows = rows + inner if norm_first else norm(rows + inner)
    return rows


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_each_sequence_is_as_alone(norm_first, size):
    layer = shake(ConvLayers(D, 2, kernel_size=size, activation="gelu", norm_first=norm_first))
    X = draw(4, 7, D)

    def alone(X: Tensor) -> Tensor:
        parts = [run_alone(layer, x[:length], norm_first) for x, length in zip(X, LENS.tolist(), strict=True) if length]
        whole = [functional.pad(x, (0, 0, 0, 7 - len(x))) for x in parts]
        return torch.stack([*whole[:2], torch.zeros(7, D, dtype=X.dtype), whole[2]])

    for a, b in zip(differentiate(layer, lambda x: layer(x, LENS), X), differentiate(layer, alone, X), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer(X), layer(X, torch.full((4,), 7)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
def test_padding_is_unread(norm_first):
    layer = shake(ConvLayers(D, 3, 0.3, norm_first=norm_first))
    assert_unread(layer, lambda x: layer(x, LENS), PADDING)


def test_nothing_at_all():
    layer = ConvLayers(D).double()
    assert layer(draw(0, 7, D), LENS[:0]).shape == (0, 7, D)
    assert layer(draw(4, 0, D)).shape == (4, 0, D)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ConvLayers(6, kernel_size=2), "ConvLayers kernel_size must be odd and at least 1, got 2."),
        (
            lambda: ConvLayers(6, activation="tanh"),
            "ConvLayers activation must be one of 'relu', 'gelu', 'silu', got 'tanh'.",
        ),
        (lambda: ConvLayers(6, 0), "ConvLayers num_layers must be at least 1, got 0."),
        (
            lambda: ConvLayers(6)(torch.ones(2, 3, 5)),
            "ConvLayers X must be (batch, positions, num_hiddens=6), got shape (2, 3, 5).",
        ),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
