"""Layers with parameters of their own, around `attend`: the attention layers of the textbooks and papers."""

from regard.layers.attention import Attention
from regard.layers.biases import AlibiBias, DenseBias, RelativeBias
from regard.layers.blocks import AddNorm, AttentionDecoder, DecoderBlock, EncoderBlock, PositionWiseFFN
from regard.layers.cache import Cache
from regard.layers.conv_layers import ConvLayers
from regard.layers.convolution_attention import ConvolutionAttention, convolution_as_attention
from regard.layers.floater import Floater, Flow
from regard.layers.grams import Grams
from regard.layers.hard import Draw, HardAttention
from regard.layers.kernel import KernelRegression
from regard.layers.multihead import MultiHeadAttention, SelfAttention, TorchMultiHeadAttention
from regard.layers.pooling import AttentionPooling
from regard.layers.positional import LearnedPositionalEncoding, PositionalEncoding
from regard.layers.recurrent import GRULayers
from regard.layers.rotary import Rotary
from regard.layers.scored import (
    AdditiveAttention,
    BilinearAttention,
    ConcatAttention,
    CosineAttention,
    DotProductAttention,
    LearnedAttention,
    masked_softmax,
)
from regard.layers.spelling import Spelling

__all__ = [
    "AddNorm",
    "AdditiveAttention",
    "AlibiBias",
    "Attention",
    "AttentionDecoder",
    "AttentionPooling",
    "BilinearAttention",
    "Cache",
    "ConcatAttention",
    "ConvLayers",
    "ConvolutionAttention",
    "CosineAttention",
    "DecoderBlock",
    "DenseBias",
    "DotProductAttention",
    "Draw",
    "EncoderBlock",
    "Floater",
    "Flow",
    "GRULayers",
    "Grams",
    "HardAttention",
    "KernelRegression",
    "LearnedAttention",
    "LearnedPositionalEncoding",
    "MultiHeadAttention",
    "PositionWiseFFN",
    "PositionalEncoding",
    "RelativeBias",
    "Rotary",
    "SelfAttention",
    "Spelling",
    "TorchMultiHeadAttention",
    "convolution_as_attention",
    "masked_softmax",
]
