"""What layers say about wrong input, in the words of their own arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.layers import (
    AdditiveAttention,
    AddNorm,
    BilinearAttention,
    Cache,
    ConcatAttention,
    DecoderBlock,
    DotProductAttention,
    EncoderBlock,
    MultiHeadAttention,
    PositionWiseFFN,
    convolution_as_attention,
    masked_softmax,
)

ONES = torch.ones
QUERIES, KEYS, VALUES = ONES(2, 3, 4), ONES(2, 7, 6), ONES(2, 7, 5)


def additive(*rows: Any, lens: Any = None) -> Callable[[], Any]:
    return lambda: AdditiveAttention(6, 4, 8)(*rows, lens)


def dot(*rows: Any) -> Callable[[], Any]:
    return lambda: DotProductAttention()(*rows)


def heads() -> MultiHeadAttention:
    return MultiHeadAttention(4, 4, 4, 4, 2)


def changed() -> Any:
    layer, keys = DotProductAttention(), ONES(2, 7, 4)
    layer(QUERIES, keys, VALUES)
    keys.zero_()
    return layer.attention_weights


def lazy() -> Any:
    return convolution_as_attention(nn.LazyConv2d(2, 3))


MESSAGES: dict[str, Callable[[], Any]] = {
    "AdditiveAttention queries must be a tensor, got list.": additive([1.0], KEYS, VALUES),
    "AdditiveAttention queries must be (batch, queries, query_size=4), got shape (2, 3, 5).": additive(
        ONES(2, 3, 5), KEYS, VALUES
    ),
    "AdditiveAttention keys must be (batch, keys, key_size=6), got shape (7, 6).": additive(
        QUERIES, ONES(7, 6), VALUES
    ),
    "DotProductAttention values must be (batch, values, value_size), got shape (2, 7).": dot(
        QUERIES, ONES(2, 7, 4), ONES(2, 7)
    ),
    "AdditiveAttention is in float32 and queries in float64: bring both to one, as by layer.to(queries.dtype).": (
        additive(QUERIES.double(), KEYS, VALUES)
    ),
    "AdditiveAttention queries, keys and values must share their batch: got [2, 1, 2].": additive(
        QUERIES, ONES(1, 7, 6), VALUES
    ),
    "AdditiveAttention must have one value for each key: got 7 keys and 6 values.": additive(
        QUERIES, KEYS, ONES(2, 6, 5)
    ),
    "AdditiveAttention valid_lens must be a tensor of integers, got list.": additive(
        QUERIES, KEYS, VALUES, lens=[1, 2]
    ),
    "AdditiveAttention valid_lens must be (batch,)=(2,) or (batch, queries)=(2, 3), got shape (3,).": additive(
        QUERIES, KEYS, VALUES, lens=torch.tensor([1, 2, 3])
    ),
    "AdditiveAttention valid_lens must be integers, got float32.": additive(QUERIES, KEYS, VALUES, lens=ONES(2)),
    "AdditiveAttention valid_lens must be at most 7 (the number of keys), got 8.": additive(
        QUERIES, KEYS, VALUES, lens=torch.tensor([1, 8])
    ),
    "AdditiveAttention dropout must lie in [0, 1), got 1.0.": lambda: AdditiveAttention(6, 4, 8, 1.0),
    "BilinearAttention keys must be (batch, keys, key_size=6), got shape (2, 7, 4).": lambda: BilinearAttention(6, 4)(
        QUERIES, ONES(2, 7, 4), VALUES
    ),
    "DotProductAttention queries and keys must be equally wide: got 4 and 6; AdditiveAttention and BilinearAttention"
    " take any widths.": dot(QUERIES, KEYS, VALUES),
    "masked_softmax scores must be (batch, queries, keys), got shape (3, 4).": lambda: masked_softmax(ONES(3, 4)),
    "masked_softmax valid_lens must be (batch,)=(2,) or (batch, queries)=(2, 3), got shape (4,).": lambda: (
        masked_softmax(ONES(2, 3, 5), torch.tensor([1, 2, 3, 4]))
    ),
    "PositionWiseFFN activation must be one of 'relu', 'gelu', 'silu', got 'sine'.": lambda: PositionWiseFFN(
        4, 8, 4, activation="sine"
    ),
    "ConcatAttention activation must be one of 'tanh', 'relu', 'sigmoid', 'gelu', 'silu', 'leaky_relu', got 'sine'.": (
        lambda: ConcatAttention(6, 4, activation="sine")
    ),
    "AddNorm with norm_first=True needs the sublayer itself as Y, got a tensor.": lambda: AddNorm(4, norm_first=True)(
        QUERIES, QUERIES
    ),
    "EncoderBlock attention must be an attention layer, got int.": lambda: EncoderBlock(24, 48, 8),
    "DecoderBlock caches must be (Cache(), Cache(is_static=True)): the source is read once.": lambda: DecoderBlock(
        heads(), heads(), 4, 8
    )(QUERIES, QUERIES, caches=(Cache(), Cache())),
    "DecoderBlock bias needs attention1 to be a MultiHeadAttention, got DotProductAttention.": lambda: DecoderBlock(
        DotProductAttention(), heads(), 4, 8
    )(QUERIES, QUERIES, bias=ONES(3, 3)),
    "DotProductAttention attention_weights cannot be made any more: what the call was given has been changed in place."
    " Read them right after the call.": changed,
    "EncoderBlock X must be (batch, positions, num_hiddens=4), got shape (2, 3, 5).": lambda: EncoderBlock(
        heads(), 4, 8
    )(ONES(2, 3, 5)),
    "DecoderBlock caches need attention1 to be a MultiHeadAttention, got DotProductAttention.": lambda: DecoderBlock(
        DotProductAttention(), heads(), 4, 8
    )(QUERIES, QUERIES, caches=(Cache(), Cache(is_static=True))),
    "convolution_as_attention conv must be an nn.Conv2d, got Conv1d.": lambda: convolution_as_attention(
        nn.Conv1d(2, 2, 3)
    ),
    "convolution_as_attention conv has no weights yet: call it on images once.": lazy,
    "convolution_as_attention conv must hold real floating-point weights, got complex64.": lambda: (
        convolution_as_attention(nn.Conv2d(2, 2, 3, dtype=torch.complex64))
    ),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_is_pinned(message):
    with pytest.raises(RegardError) as error:
        MESSAGES[message]()
    assert str(error.value) == message
