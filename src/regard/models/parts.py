"""Building blocks of attention models, by their names in configs: attention, positional encodings, initial weights."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.biases import AlibiBias, RelativeBias
from regard.layers.inputs import check_rows
from regard.layers.multihead import MultiHeadAttention
from regard.layers.positional import LearnedPositionalEncoding, PositionalEncoding
from regard.layers.rotary import Rotary
from regard.mask import Window
from regard.mask.integer import misfit_integers
from regard.weigh import WEIGHS


class Attending(Protocol):
    """The settings of a config that are about attention."""

    @property
    def num_hiddens(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def position(self) -> str: ...
    @property
    def max_len(self) -> int: ...
    @property
    def score(self) -> str: ...
    @property
    def weigh(self) -> str: ...
    @property
    def window(self) -> int | tuple[int, int] | None: ...


def build_attention(config: Attending, bias: bool, position: Rotary | None = None) -> MultiHeadAttention:
    """Multi-head attention of the model's width; `bias` is that of its linear layers."""
    d, heads, weigh = config.num_hiddens, config.num_heads, WEIGHS[config.weigh]()
    rate, score = config.attention_dropout, config.score
    return MultiHeadAttention(d, d, d, d, heads, rate, bias, score=score, weigh=weigh, position=position)


def build_rotary(config: Attending) -> Rotary | None:
    """The rotary positional embedding of queries and keys, if the config has it."""
    d, heads = config.num_hiddens, config.num_heads
    return Rotary(d // heads, max_len=config.max_len) if config.position == "rotary" else None


def encode_positions(config: Attending, dropout: float) -> PositionalEncoding | LearnedPositionalEncoding | None:
    """Positional encoding that is added to embeddings, sinusoidal or learned, with dropout, if the config has it."""
    if config.position == "sinusoidal":
        return PositionalEncoding(config.num_hiddens, dropout, config.max_len)
    if config.position == "learned":
        return LearnedPositionalEncoding(config.num_hiddens, dropout, config.max_len)
    return None


def bias_positions(config: Attending, two_sided: bool) -> RelativeBias | AlibiBias | None:
    """Position bias that is added to attention scores, relative or ALiBi, if the config has it."""
    if config.position == "relative":
        return RelativeBias(config.num_heads, two_sided=two_sided)
    return AlibiBias(config.num_heads) if config.position == "alibi" else None


def build_window(config: Attending) -> Window | None:
    """The mask of windowed (local) self-attention, if the config has it."""
    if config.window is None:
        return None
    return Window(*(config.window if isinstance(config.window, tuple) else (config.window, config.window)))


@torch.no_grad()
def initialise(module: nn.Module, std: float | None = None) -> None:
    """Initialise a module's own weights: Xavier uniform and zero biases, embeddings normal with `std` or 1/√d."""
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=std or module.embedding_dim**-0.5)
        if module.padding_idx is not None:
            module.weight[module.padding_idx] = 0
    elif isinstance(module, LearnedPositionalEncoding):
        nn.init.normal_(module.P, std=std or module.num_hiddens**-0.5)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@torch.no_grad()
def initialise_vectors(embedding: nn.Linear, std: float) -> None:
    """Draw weights that make of vectors of variance one rows as large as those of a table of this deviation."""
    nn.init.normal_(embedding.weight, std=std / embedding.in_features**0.5)


def check_given(model: nn.Module, name: str, given: Tensor, embedding: nn.Module) -> None:
    """Check that the input is (batch, positions) of token ids, or of vectors for a linear layer."""
    if isinstance(embedding, nn.Embedding):
        check_ids(type(model).__name__, name, given, embedding.num_embeddings)
    elif isinstance(embedding, nn.Linear):
        check_rows(model, given, name, "input_size", embedding.in_features)


def check_ids(called: str, name: str, ids: Tensor, size: int, last: str = "the last of the vocabulary") -> None:
    """Check that the input is (batch, positions) of ids below `size`."""
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise RegardError(f"{called} {name} must be int64 or int32 (batch, positions), got {describe(ids)}.")
    # a look at the numbers would make a GPU wait; its own kernel stops at an id that is none
    is_seen = ids.device.type == "cpu" and not torch.compiler.is_compiling()
    low, high = (0, size - 1) if is_seen else (None, None)
    if problem := misfit_integers(name, ids, ids.device, low, high, last):
        raise RegardError(f"{called} {problem}")


def describe(given: object) -> str:
    """A tensor by its dtype and shape, anything else by its class."""
    kind = str(getattr(given, "dtype", "")).removeprefix("torch.")
    return f"{kind} of shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
