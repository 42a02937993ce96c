"""A small Transformer, and sentences for it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.models.transformer import Config, Transformer

VOCAB = 23
SMALL = Config(VOCAB, None, num_hiddens=12, ffn_num_hiddens=20, num_heads=3, num_encoder_layers=2, num_decoder_layers=2)
LENS = torch.tensor([3, 7])


def draw(*shape: int, seed: int = 0, vocab: int = VOCAB) -> Tensor:
    return torch.randint(1, vocab, shape, generator=torch.Generator().manual_seed(seed))


SOURCE, TARGET = draw(2, 7), draw(2, 6, seed=1)


def build(**changes) -> Transformer:
    """A model in float64 with every parameter drawn, so that none hides by being zero or one."""
    torch.manual_seed(0)
    model = Transformer(replace(SMALL, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def assert_same(actual: Tensor, expected: Tensor, within: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=within)
