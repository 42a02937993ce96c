"""The Transformer, an encoder-decoder: https://arxiv.org/abs/1706.03762."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.layers.blocks import DecoderBlock, EncoderBlock, PositionWiseFFN
from regard.layers.cache import Cache
from regard.layers.padding import clear_padding, find_valid
from regard.mask.integer import assert_range, misfit_integers, recall_range, remember_range
from regard.models.config import POSITIONS
from regard.models.parts import (
    bias_positions,
    build_attention,
    build_rotary,
    build_window,
    check_given,
    describe,
    encode_positions,
    initialise,
    initialise_vectors,
)
from regard.models.pretrained import Pretrained
from regard.models.transformer_config import PRESETS, Config

__all__ = ["POSITIONS", "PRESETS", "Config", "Transformer", "TransformerState"]

Caches = list[tuple[Cache, Cache]]


@dataclass(eq=False)
class TransformerState:
    """The state of the decoder between steps, with its key-value cache; a `regard.models.decode.State`."""

    memory: Tensor
    memory_valid_lens: Tensor | None
    caches: Caches
    # which of the encoder's sequences each row belongs to
    sources: Tensor

    @property
    def device(self) -> torch.device:
        return self.memory.device

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, rows: Tensor) -> Self:
        """Let row i continue row `rows[i]` (beam search), in place; there may be more or fewer of them."""
        if not isinstance(rows, Tensor) or rows.ndim != 1:
            raise RegardError(f"Transformer state takes a vector of row numbers, got {describe(rows)}.")
        if problem := misfit_integers("rows", rows, self.device, 0, len(self) - 1, "the last row"):
            raise RegardError(f"Transformer state {problem}")
        rows = rows.long()
        for own, _ in self.caches:
            own.reorder(rows)
        sources = self.sources[rows]
        # beams that change places within their own sentence all have the same source before them
        if torch.equal(sources, self.sources):
            return self
        for _, other in self.caches:
            other.reorder(rows)
        self.sources, self.memory = sources, self.memory[rows]
        if self.memory_valid_lens is not None:
            known, self.memory_valid_lens = recall_range(self.memory_valid_lens), self.memory_valid_lens[rows]
            # some of the same numbers: the layers of the next step need not wait for a GPU to tell
            if known:
                remember_range(self.memory_valid_lens, *known)
        return self


class Transformer(Pretrained):
    """The Transformer, an encoder-decoder: the logits of each next token of the target.

    >>> model = Transformer(Config.preset("tiny", vocab_size=100)).eval()
    >>> source, source_lens = torch.tensor([[5, 6, 7, 0], [8, 9, 10, 11]]), torch.tensor([3, 4])
    >>> model(source, source_lens, torch.tensor([[1, 20, 21], [1, 22, 23]])).shape
    torch.Size([2, 3, 100])

    Or step by step, with the same outcome:

    >>> state = model.init_state(model.encode(source, source_lens), source_lens)
    >>> logits, state = model.decode(torch.tensor([[1], [1]]), state)

    Linear layers start as Xavier's uniform draw with biases of zero, embeddings at a normal draw of deviation 1/√d;
    they are multiplied by √d when they are read. `source_lens` None means that no source is padded. Targets need no
    lengths, since what is padded comes last. With `inputs="vectors"` a source is of vectors, (batch, positions,
    input_size), and padding may hold anything.
    """

    model_type, config_class = "regard-transformer", Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        d = config.num_hiddens
        is_shared = config.target_vocab_size is None and config.ties_embeddings and config.inputs == "ids"
        target_size = config.target_vocab_size or config.vocab_size
        # None where another matrix serves: one parameter, saved under one name
        self.embedding: nn.Embedding | nn.Linear
        if config.inputs == "ids":
            self.embedding = nn.Embedding(config.vocab_size, d, config.pad_id)
        else:
            # no bias: of one-hot vectors it makes what a table makes of ids
            self.embedding = nn.Linear(config.input_size, d, bias=False)
        self.target_embedding = None if is_shared else nn.Embedding(target_size, d, config.pad_id)
        self.output = None if config.ties_embeddings else nn.Linear(d, target_size, bias=False)
        self.encoder_position, self.decoder_position = (
            encode_positions(config, config.dropout) or nn.Dropout(config.dropout) for _ in range(2)
        )
        rotary = build_rotary(config)
        self.encoder_bias, self.decoder_bias = bias_positions(config, True), bias_positions(config, False)
        self.window = build_window(config)
        sizes = d, config.ffn_num_hiddens, config.dropout
        style: dict[str, Any] = {"norm_first": config.norm_first, "activation": config.activation}
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for _ in range(config.num_encoder_layers):
            self.encoder.append(EncoderBlock(build_attention(config, config.bias, rotary), *sizes, **style))
        for _ in range(config.num_decoder_layers):
            self.decoder.append(
                DecoderBlock(
                    build_attention(config, config.bias, rotary), build_attention(config, config.bias), *sizes, **style
                )
            )
        for ffn in (x for x in self.modules() if isinstance(x, PositionWiseFFN)):
            # blocks have one rate for both places
            ffn.dropout.p = config.ffn_dropout
        norm = nn.LayerNorm if config.norm_first else nn.Identity
        self.encoder_norm, self.decoder_norm = norm(d), norm(d)
        self.apply(initialise)
        if isinstance(self.embedding, nn.Linear):
            initialise_vectors(self.embedding, d**-0.5)

    def forward(
        self,
        source: Int[Tensor, "batch source_positions"] | Float[Tensor, "batch source_positions input_size"],
        source_lens: Tensor | None,
        target_inputs: Int[Tensor, "batch positions"],
    ) -> Float[Tensor, "batch positions vocab"]:
        return self._decode(target_inputs, self.encode(source, source_lens), source_lens, None)

    def encode(
        self,
        source: Int[Tensor, "batch positions"] | Float[Tensor, "batch positions input_size"],
        source_lens: Tensor | None = None,
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        """Encode the source: the encoder's outputs; rows past `source_lens` mean nothing."""
        check_given(self, "source", source, self.embedding)
        # all layers ask for the same lengths
        assert_range(source_lens, 0, source.shape[1])
        if self.config.inputs == "vectors":
            # whatever stands in padding would reach the gradient of the layer
            source = clear_padding(source, find_valid(self, source, source_lens))
        X = self._embed(source, self.embedding, self.encoder_position, 0)
        bias = None if self.encoder_bias is None else self.encoder_bias()
        for block in self.encoder:
            X = block(X, source_lens, mask=self.window, bias=bias)
        out: Tensor = self.encoder_norm(X)
        return out

    def init_state(self, enc_outputs: Tensor, enc_valid_lens: Tensor | None = None) -> TransformerState:
        """The initial state of the decoder; `enc_valid_lens` are the lengths that `encode` was given."""
        caches, rows = [(Cache(), Cache(is_static=True)) for _ in self.decoder], torch.arange(len(enc_outputs))
        return TransformerState(enc_outputs, enc_valid_lens, caches, rows.to(enc_outputs.device))

    def decode(self, X: Int[Tensor, "batch positions"], state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Decode new positions X: their logits (batch, positions, vocab), and the state, its cache updated in place."""
        return self._decode(X, state.memory, state.memory_valid_lens, state.caches), state

    def reorder(self, state: TransformerState, indices: Tensor) -> TransformerState:
        """The state, in which sequence s continues sequence `indices[s]` (beam search), in place."""
        return state.take(indices)

    @property
    def attention_weights(self) -> dict[str, tuple[Tensor | None, ...]]:
        """The attention weights of the last call, one a layer: "encoder" and "decoder" self-attention, "cross"."""
        encoder, pairs = ([block.attention_weights for block in x] for x in (self.encoder, self.decoder))
        own, other = zip(*pairs, strict=True)
        return {"encoder": tuple(encoder), "decoder": own, "cross": other}

    def _decode(self, X: Tensor, memory: Tensor, lens: Tensor | None, caches: Caches | None) -> Tensor:
        embedding = self.embedding if self.target_embedding is None else self.target_embedding
        check_given(self, "target", X, embedding)
        Y = self._embed(X, embedding, self.decoder_position, caches[0][0].length if caches else 0)
        if len(Y) != len(memory):
            raise RegardError(f"Transformer needs a target for each source, got {len(Y)} and {len(memory)} sequences.")
        bias = None if self.decoder_bias is None else self.decoder_bias()
        before = None if self.window is None else self.window.before
        for i, block in enumerate(self.decoder):
            cached = None if caches is None else caches[i]
            Y = block(Y, memory, lens, before=before, bias=bias, caches=cached)
        weight = embedding.weight if self.output is None else self.output.weight
        return functional.linear(self.decoder_norm(Y), weight)

    def _embed(self, ids: Tensor, embedding: nn.Module, position: nn.Module, offset: int) -> Tensor:
        X = embedding(ids) * self.config.num_hiddens**0.5
        out: Tensor = position(X) if isinstance(position, nn.Dropout) else position(X, offset=offset)
        return out

    def extra_repr(self) -> str:
        return repr(self.config)
