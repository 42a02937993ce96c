"""A GRU encoder-decoder with attention (Bahdanau): https://arxiv.org/abs/1409.0473, parameters as in https://d2l.ai."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard import layers
from regard.core import RegardError, Score
from regard.core.kinds import describe
from regard.engine.memory import Memory, can_share
from regard.layers.inputs import check_rate, join_dtypes
from regard.layers.positional import check_count
from regard.layers.scored import ScoredAttention, build_scored
from regard.mask import Full, Lengths
from regard.mask.integer import misfit_integers
from regard.models.pretrained import Pretrained
from regard.models.seq2seq_config import PRESETS, Config
from regard.models.seq2seq_state import Encoded, Seq2SeqState
from regard.score import Additive
from regard.weigh import Hard

__all__ = ["PRESETS", "Config", "Seq2Seq", "Seq2SeqAttentionDecoder", "Seq2SeqEncoder"]

# up to so many numbers in its keys, a step weighs all at once: to part them takes longer than it saves memory
FEW = 2**23


class Seq2SeqEncoder(nn.Module):
    """A GRU encoder of the source.

    >>> encoder = Seq2SeqEncoder(vocab_size=10, embed_size=8, num_hiddens=16, num_layers=2)
    >>> outputs, hidden = encoder(torch.ones(4, 7, dtype=torch.int64), torch.tensor([7, 3, 1, 2]))
    >>> outputs.shape, hidden.shape
    (torch.Size([4, 7, 16]), torch.Size([2, 4, 16]))

    Outputs past `valid_lens` are zeros, and the hidden state is that of the last valid step: padding changes nothing.
    `is_bidirectional` reads both ways with half of the hidden units each. `dropout` acts between layers,
    `embed_dropout` on the embeddings.
    """

    def __init__(
        self, vocab_size: int, embed_size: int, num_hiddens: int, num_layers: int, dropout: float = 0.0, *,
        embed_dropout: float = 0.0, is_bidirectional: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_sizes(self, (vocab_size, embed_size, num_hiddens, num_layers), dropout, embed_dropout)
        if is_bidirectional and num_hiddens % 2:
            raise RegardError(f"Seq2SeqEncoder num_hiddens must be even where is_bidirectional, got {num_hiddens}.")
        self.embedding = nn.Embedding(vocab_size, embed_size)
        width = num_hiddens // 2 if is_bidirectional else num_hiddens
        self.rnn = _build_gru(embed_size, width, num_layers, dropout, is_bidirectional)
        self.embed_dropout = nn.Dropout(embed_dropout)

    def forward(self, X: Int[Tensor, "batch steps"], valid_lens: Tensor | None = None) -> Encoded:
        _check_tokens(self, X, self.embedding.num_embeddings)
        rows = self.embed_dropout(self.embedding(X))
        if valid_lens is not None:
            _check_lens(self, "valid_lens", valid_lens, X)
            # torch packs no empty sequence
            rows = pack_padded_sequence(rows, valid_lens.cpu().clamp(min=1), batch_first=True, enforce_sorted=False)
        outputs, hidden = self.rnn(rows)
        if self.rnn.bidirectional:
            # the last states of both directions side by side, as the outputs are
            hidden = hidden.unflatten(0, (self.rnn.num_layers, 2)).transpose(1, 2).flatten(2)
        if valid_lens is None:
            return Encoded(outputs, hidden)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=X.shape[1])
        # the one step of an empty sequence is taken back
        is_empty = (valid_lens == 0)[:, None]
        return Encoded(outputs.masked_fill(is_empty[:, None], 0), hidden.masked_fill(is_empty, 0))


class Seq2SeqAttentionDecoder(layers.AttentionDecoder):
    """A GRU decoder with attention to the source before each step, with the textbook's parameters.

    >>> encoder = Seq2SeqEncoder(vocab_size=10, embed_size=8, num_hiddens=16, num_layers=2)
    >>> decoder = Seq2SeqAttentionDecoder(vocab_size=10, embed_size=8, num_hiddens=16, num_layers=2)
    >>> tokens = torch.ones(4, 7, dtype=torch.int64)
    >>> logits, state = decoder(tokens, decoder.init_state(encoder(tokens)))
    >>> logits.shape, decoder.attention_weights.shape
    (torch.Size([4, 7, 10]), torch.Size([4, 7, 7]))

    The query is the top hidden state of the step before; the context, next to the embedding, is what the GRU reads.
    `attention` is additive unless another layer of `regard.layers` with a score is given. Calling it step by step with
    the state it returns is the same as one call.
    """

    def __init__(
        self, vocab_size: int, embed_size: int, num_hiddens: int, num_layers: int, dropout: float = 0.0, *,
        attention: ScoredAttention | None = None, embed_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_sizes(self, (vocab_size, embed_size, num_hiddens, num_layers), dropout, embed_dropout)
        if attention is None:
            attention = layers.AdditiveAttention(num_hiddens, num_hiddens, num_hiddens, dropout)
        if not isinstance(attention, ScoredAttention):
            raise RegardError(
                "Seq2SeqAttentionDecoder attention must be a layer with a score, as AdditiveAttention or"
                f" DotProductAttention, got {type(attention).__name__}."
            )
        if isinstance(attention.weigh, Hard) and attention.weigh.how == "sample":
            raise RegardError(
                f"Seq2SeqAttentionDecoder attention must not draw its weights, got weigh={attention.weigh}."
            )
        self.attention = attention
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = _build_gru(embed_size + num_hiddens, num_hiddens, num_layers, dropout)
        self.dense = nn.Linear(num_hiddens, vocab_size)
        self.embed_dropout = nn.Dropout(embed_dropout)

    def init_state(self, enc_outputs: Any, enc_valid_lens: Tensor | None = None, *args: Any) -> Seq2SeqState:
        """The initial state of the decoder, of an encoder's outputs and hidden state.

        A pair is what the textbook's encoder returns, outputs (source, batch, num_hiddens); what `Seq2SeqEncoder`
        returns is taken as it is, with its batch first.
        """
        if not isinstance(enc_outputs, tuple | list) or len(enc_outputs) != 2:
            raise RegardError(
                "Seq2SeqAttentionDecoder enc_outputs must be a pair, an encoder's outputs and its hidden state, got"
                f" {describe(enc_outputs)}."
            )
        memory, hidden = enc_outputs
        depth, size = self.rnn.num_layers, self.rnn.hidden_size
        if memory.ndim == 3 and not isinstance(enc_outputs, Encoded):
            memory = memory.transpose(0, 1)
        if memory.ndim != 3 or memory.shape[-1] != size or tuple(hidden.shape) != (depth, memory.shape[0], size):
            raise RegardError(
                f"Seq2SeqAttentionDecoder enc_outputs must be (source, batch, {size}) and ({depth}, batch, {size}), or"
                f" as Seq2SeqEncoder returned them, got shapes {tuple(enc_outputs[0].shape)} and {tuple(hidden.shape)}."
            )
        if enc_valid_lens is not None:
            _check_lens(self, "enc_valid_lens", enc_valid_lens, memory)
        layer = self.attention
        keys = layer.W_k(memory) if _projects(layer) else memory
        owner = torch.arange(memory.shape[0], device=memory.device)
        return Seq2SeqState(memory, keys, hidden, enc_valid_lens, owner)

    def forward(
        self, X: Int[Tensor, "batch steps"], state: Seq2SeqState
    ) -> tuple[Float[Tensor, "batch steps vocab_size"], Seq2SeqState]:
        _check_tokens(self, X, self.embedding.num_embeddings)
        if len(X) != len(state):
            raise RegardError(
                f"Seq2SeqAttentionDecoder X and state must share their batch: got {len(X)} and {len(state)}."
            )
        attention, hidden = self.attention, state.hidden
        mask = Full() if state.valid_lens is None else Lengths(state.valid_lens)
        rate = attention.dropout if attention.training else 0.0
        is_small = state.keys.numel() <= FEW
        memory: Memory | None = None
        queries, outputs = [], []
        for embedded in self.embed_dropout(self.embedding(X)).split(1, 1):
            # one layer's as it is: the gradient of a part begins with zeros for all
            top = (hidden if len(hidden) == 1 else hidden[-1:]).transpose(0, 1)
            if memory is None:
                query, key, score = self._compare(top, state.keys)
                query, key, value = join_dtypes(query, key, state.memory)
                terms: dict[str, Any] = {"score": score, "weigh": attention.weigh, "mask": mask}
                if is_small and _shares_keys(attention, score) and can_share():
                    memory = Memory(query, key, value, **terms, dropout=rate)
            else:
                query = (attention.W_q(top) if _projects(attention) else top).to(key.dtype)
            if memory is None:
                terms |= {"dropout": attention.dropout, "backend": "reference" if is_small else "auto"}
                context = attention._attend(query, key, value, **terms)
            else:
                context = memory.attend(query)
            output, hidden = self.rnn(torch.cat((context.to(embedded.dtype), embedded), -1), hidden)
            queries.append(query)
            outputs.append(output)
        if attention.shows_weights:
            # of all steps, not of the last alone
            with torch.no_grad():
                query = torch.cat(queries, 1)
        attention._remember(query, key, score, attention.weigh, mask, None)
        logits: Tensor = self.dense(torch.cat(outputs, 1))
        return logits, replace(state, hidden=hidden)

    def _compare(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
        """Query, key and score as the attention layer makes them, its keys being projected already."""
        layer = self.attention
        if not _projects(layer):
            return layer.compare(queries, keys)
        query = layer.W_q(queries)
        return query, keys, Additive(layer.w_v.weight[0].to(query.dtype))

    @property
    def attention_weights(self) -> Tensor | None:
        """The attention weights of the last call, (batch, steps, source), made when first read; else None."""
        return self.attention.attention_weights


class Seq2Seq(Pretrained):
    """A GRU encoder-decoder with attention: the logits of each next token of the target.

    >>> model = Seq2Seq.from_config(Config.preset("tiny", src_vocab_size=50, tgt_vocab_size=60))
    >>> source, target = torch.ones(4, 7, dtype=torch.int64), torch.ones(4, 5, dtype=torch.int64)
    >>> model(source, torch.tensor([7, 3, 1, 2]), target).shape
    torch.Size([4, 5, 60])

    `model.decoder` and `model.encode(source, source_lens)` are what the functions of `regard.models.decode` take.
    """

    model_type, config_class = "regard-seq2seq", Config

    def __init__(self, encoder: Seq2SeqEncoder, decoder: Seq2SeqAttentionDecoder, config: Config | None = None) -> None:
        super().__init__()
        self.encoder, self.decoder, self.config = encoder, decoder, config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """A new model, its weights initialised at random."""
        sizes = config.embed_size, config.num_hiddens, config.num_layers, config.dropout
        rate, both = config.embed_dropout, config.is_bidirectional
        encoder = Seq2SeqEncoder(config.src_vocab_size, *sizes, embed_dropout=rate, is_bidirectional=both)
        attention = build_scored(config.attention, config.num_hiddens, config.dropout)
        decoder = Seq2SeqAttentionDecoder(config.tgt_vocab_size, *sizes, attention=attention, embed_dropout=rate)
        return cls(encoder, decoder, config)

    def encode(self, source: Int[Tensor, "batch source"], source_lens: Tensor | None = None) -> Seq2SeqState:
        """Encode the source: the initial state of the decoder."""
        return self.decoder.init_state(self.encoder(source, source_lens), source_lens)

    def forward(
        self, source: Int[Tensor, "batch source"], source_lens: Tensor | None, target_inputs: Int[Tensor, "batch steps"]
    ) -> Float[Tensor, "batch steps tgt_vocab_size"]:
        logits: Tensor = self.decoder(target_inputs, self.encode(source, source_lens))[0]
        return logits

    @property
    def attention_weights(self) -> Tensor | None:
        """The attention weights of the last call, (batch, steps, source)."""
        return self.decoder.attention_weights


def _projects(layer: ScoredAttention) -> TypeGuard[layers.AdditiveAttention]:
    """Whether keys can be projected ahead, once: a subclass may compare in its own way."""
    return type(layer).compare is layers.AdditiveAttention.compare


def _shares_keys(layer: ScoredAttention, score: Score) -> bool:
    """Whether all steps have the same keys and score, and it is finite for keys of zeros, as hidden ones are there.

    A subclass may make them of its queries or attend in its own way, and a score of one's own may divide by a key.
    """
    cls = type(layer)
    is_ours = cls._attend is ScoredAttention._attend and cls.compare.__module__ == ScoredAttention.__module__
    return is_ours and type(score).__module__.startswith("regard.")


def _build_gru(size: int, width: int, num_layers: int, dropout: float, is_bidirectional: bool = False) -> nn.GRU:
    # torch warns of a rate between layers where there is but one
    options: Any = {"dropout": dropout if num_layers > 1 else 0.0, "bidirectional": is_bidirectional}
    return nn.GRU(size, width, num_layers, batch_first=True, **options)


def _check_sizes(module: nn.Module, sizes: tuple[int, ...], *rates: float) -> None:
    for name, size in zip(("vocab_size", "embed_size", "num_hiddens", "num_layers"), sizes, strict=True):
        check_count(module, name, size)
    for rate in rates:
        check_rate(module, rate)


def _check_tokens(module: nn.Module, X: Tensor, vocab_size: int) -> None:
    called = type(module).__name__
    if not isinstance(X, Tensor) or X.ndim != 2 or 0 in X.shape:
        found = f"shape {tuple(X.shape)}" if isinstance(X, Tensor) else type(X).__name__
        raise RegardError(f"{called} X must be token ids (batch, steps), at least one of each, got {found}.")
    if X.dtype not in (torch.int64, torch.int32):
        raise RegardError(f"{called} X must be int64 or int32, got {str(X.dtype).removeprefix('torch.')}.")
    # a GPU would have to wait for the answer
    if X.device.type == "cpu" and not torch.compiler.is_compiling():
        least, most = (int(x) for x in torch.aminmax(X))
        if worst := least if least < 0 else most if most >= vocab_size else 0:
            raise RegardError(f"{called} X must lie in [0, vocab_size={vocab_size}), got token {worst}.")


def _check_lens(module: nn.Module, name: str, lens: Tensor, rows: Tensor) -> None:
    called, (batch, m) = type(module).__name__, rows.shape[:2]
    if not isinstance(lens, Tensor) or lens.shape != (batch,):
        found = f"shape {tuple(lens.shape)}" if isinstance(lens, Tensor) else type(lens).__name__
        raise RegardError(f"{called} {name} must be one length for each sequence, ({batch},), got {found}.")
    if problem := misfit_integers(name, lens, rows.device, 0, m, "the number of source positions"):
        raise RegardError(f"{called} {problem}")
