"""Layers with parameters of their own, around `attend`: the attention layers of the textbooks and papers."""

from regard.layers.attention import Attention
from regard.layers.scored import (
    AdditiveAttention,
    BilinearAttention,
    ConcatAttention,
    CosineAttention,
    DotProductAttention,
    masked_softmax,
)

__all__ = [
    "AdditiveAttention",
    "Attention",
    "BilinearAttention",
    "ConcatAttention",
    "CosineAttention",
    "DotProductAttention",
    "masked_softmax",
]
