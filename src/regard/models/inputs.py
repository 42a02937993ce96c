"""What a model reads, ids or vectors, and the layer that makes rows of its width of them."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from regard.layers.inputs import check_rows
from regard.models.parts import check_ids


class Reading(Protocol):
    """The part of a config that says what a model reads."""

    @property
    def inputs(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def input_size(self) -> int: ...
    @property
    def num_hiddens(self) -> int: ...
    @property
    def pad_id(self) -> int: ...


def build_embedding(config: Reading) -> nn.Embedding | nn.Linear:
    """A table of ids, or a linear layer for vectors: of one-hot vectors it makes what the table makes of ids."""
    if config.inputs == "ids":
        return nn.Embedding(config.vocab_size, config.num_hiddens, config.pad_id)
    return nn.Linear(config.input_size, config.num_hiddens, bias=False)


def start_embedding(embedding: nn.Embedding | nn.Linear, std: float) -> None:
    """Draw a linear layer so that vectors of variance one become as large as the rows of a table of this deviation."""
    if isinstance(embedding, nn.Linear):
        nn.init.normal_(embedding.weight, std=std / embedding.in_features**0.5)


def check_given(model: nn.Module, name: str, given: Tensor, embedding: nn.Embedding | nn.Linear) -> None:
    """Complain unless these are (batch, positions) of ids, or (batch, positions, input_size) of vectors."""
    if isinstance(embedding, nn.Embedding):
        check_ids(type(model).__name__, name, given, embedding.num_embeddings)
    else:
        check_rows(model, given, name, "input_size", embedding.in_features)
