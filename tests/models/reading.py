"""Small encoders of every make, and sentences for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.models.encoder import Config, Encoder

VOCAB, LETTERS, LABELS = 23, 9, ("A", "B", "C")
SMALL = Config(VOCAB, LABELS, "none", num_hiddens=12, ffn_num_hiddens=20, num_heads=3, num_layers=2)
# every part that there is
RICH: dict[str, Any] = {"num_characters": LETTERS, "num_types": 2, "has_embed_norm": True}
LENS = torch.tensor([3, 7, 0, 1])
VALID = torch.arange(7) < LENS[:, None]


def draw(*shape: int, seed: int = 0, least: int = 1, most: int = VOCAB) -> Tensor:
    return torch.randint(least, most, shape, generator=torch.Generator().manual_seed(seed))


def draw_inputs(seed: int = 0, **config: Any) -> dict[str, Tensor]:
    """Sentences, and what else a model of this config takes."""
    inputs = {"ids": draw(4, 7, seed=seed)}
    if config.get("num_characters"):
        inputs["spelling"] = draw(4, 7, 5, seed=seed, least=0, most=LETTERS)
    if config.get("num_types"):
        inputs["types"] = draw(4, 7, seed=seed, least=0, most=2)
    return inputs


def build(**changes: Any) -> Encoder:
    """A model in float64 with every parameter drawn, so that none hides by being zero or one."""
    torch.manual_seed(0)
    model = Encoder(replace(SMALL, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def assert_same(actual: Tensor, expected: Tensor, within: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=within)
