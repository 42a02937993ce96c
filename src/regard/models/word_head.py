"""BERT's head for masked language modelling: https://arxiv.org/abs/1810.04805."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.layers.blocks import ACTIVATIONS


class WordHead(nn.Module):
    """BERT's head for masked language modelling: dense, activation, norm, then the tied embeddings, with a bias.

    >>> WordHead(8, 5, "gelu")(torch.ones(2, 3, 8), torch.ones(5, 8)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(self, num_hiddens: int, vocab_size: int, activation: str) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(num_hiddens, num_hiddens), nn.LayerNorm(num_hiddens)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.activation = activation

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        return functional.linear(self.norm(ACTIVATIONS[self.activation](self.dense(hidden))), embeddings, self.bias)
