"""The Transformer, encoder and decoder: https://arxiv.org/abs/1706.03762."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError, Weigh
from regard.layers.biases import AlibiBias, RelativeBias
from regard.layers.blocks import ACTIVATIONS, DecoderBlock, EncoderBlock, PositionWiseFFN
from regard.layers.cache import Cache
from regard.layers.multihead import SCORES, MultiHeadAttention
from regard.layers.order import LearnedPositionalEncoding, PositionalEncoding
from regard.layers.rotary import Rotary
from regard.mask.integer import misfit_integers, recall_range, remember_range, vouch
from regard.models.pretrained import Pretrained
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax

Caches = list[tuple[Cache, Cache]]
POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "alibi", "none")
WEIGHS: dict[str, type[Weigh]] = {x.__name__.lower(): x for x in (Softmax, Relu, Sigmoid, Entmax, Sparsemax, Hard)}
_NAMED = {"position": POSITIONS, "score": SCORES, "weigh": WEIGHS, "activation": ACTIVATIONS}
_KINDS: dict[str, Any] = {"int": int, "int | None": (int, NoneType), "float": (int, float), "bool": bool, "str": str}

_SIZES = ("num_hiddens", "ffn_num_hiddens", "num_heads", "num_encoder_layers", "num_decoder_layers", "dropout")
PRESETS: dict[str, dict[str, Any]] = {
    # the text-only baseline of Multi30k
    "tiny": dict(zip(_SIZES, (128, 256, 4, 4, 4, 0.3), strict=True)),
    "small": dict(zip(_SIZES, (256, 1024, 8, 3, 3, 0.2), strict=True)),
    # the paper's own
    "base": dict(zip(_SIZES, (512, 2048, 8, 6, 6, 0.1), strict=True)),
}


@dataclass(frozen=True)
class Config:
    """What a `Transformer` is made of, in numbers and names, so that it can be written as JSON.

    >>> Config.preset("tiny", vocab_size=9716).num_hiddens
    128

    `target_vocab_size` None means that source and target share one vocabulary. `ties_embeddings` makes one matrix of
    the target's embeddings and the output layer, and of the source's where the vocabulary is shared. `dropout` is the
    paper's, after the embeddings and after each sublayer; `attention_dropout` and `ffn_dropout` are within them.
    `bias` is that of the linear layers of attention. `max_len` is a limit for learned positions alone.

    With `norm_first` both stacks end in a norm. Relative positions are shared by the layers of a stack, as in T5.
    """

    vocab_size: int
    target_vocab_size: int | None = None
    num_hiddens: int = 512
    ffn_num_hiddens: int = 2048
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dropout: float = 0.1
    attention_dropout: float = 0.0
    ffn_dropout: float = 0.0
    bias: bool = True
    norm_first: bool = False
    ties_embeddings: bool = True
    position: str = "sinusoidal"
    score: str = "dot"
    weigh: str = "softmax"
    activation: str = "relu"
    pad_id: int = 0
    max_len: int = 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value, kind = field.name, getattr(self, field.name), str(field.type)
            # True is an int to Python
            if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
                raise RegardError(f"Config {name} must be {kind}, got {value!r}.")
            if name in _NAMED and value not in _NAMED[name]:
                names = ", ".join(map(repr, _NAMED[name]))
                raise RegardError(f"Config {name} must be one of {names}, got {value!r}.")
            if name.endswith("dropout") and not 0 <= value < 1:
                raise RegardError(f"Config {name} must lie in [0, 1), got {value}.")
            if kind.startswith("int") and name != "pad_id" and value is not None and value < 1:
                raise RegardError(f"Config {name} must be at least 1, got {value}.")
        if self.num_hiddens % self.num_heads:
            d, heads = self.num_hiddens, self.num_heads
            raise RegardError(f"Config num_hiddens={d} must be a multiple of num_heads={heads}.")
        smallest = min(self.vocab_size, self.target_vocab_size or self.vocab_size)
        if not 0 <= self.pad_id < smallest:
            raise RegardError(f"Config pad_id must lie in each vocabulary, 0 to {smallest - 1}, got {self.pad_id}.")

    @classmethod
    def preset(cls, name: str, vocab_size: int, **changes: Any) -> Self:
        """One of `PRESETS`, with changes."""
        if name not in PRESETS:
            raise RegardError(f"Config preset must be one of {', '.join(map(repr, PRESETS))}, got {name!r}.")
        return cls.from_dict({**PRESETS[name], "vocab_size": vocab_size, **changes})

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` gave, as after a way through JSON."""
        known = [field.name for field in fields(cls)]
        for name in entries:
            if name not in known:
                raise RegardError(f"Config has no {name!r}; it has {', '.join(known)}.")
        if "vocab_size" not in entries:
            raise RegardError(f"Config needs 'vocab_size', got {', '.join(entries) or 'nothing'}.")
        return cls(**entries)


@dataclass(eq=False)
class TransformerState:
    """What the decoder carries from step to step; a `regard.models.decode.State`."""

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
        """Let row i go on from what row `rows[i]` has so far, in place; there may be more or fewer of them."""
        if not isinstance(rows, Tensor) or rows.ndim != 1:
            raise RegardError(f"Transformer state takes a vector of row numbers, got {_describe(rows)}.")
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
    """Encoder and decoder of attention alone: the logits of each next token of the target.

    >>> model = Transformer(Config.preset("tiny", vocab_size=100)).eval()
    >>> source, source_lens = torch.tensor([[5, 6, 7, 0], [8, 9, 10, 11]]), torch.tensor([3, 4])
    >>> model(source, source_lens, torch.tensor([[1, 20, 21], [1, 22, 23]])).shape
    torch.Size([2, 3, 100])

    Or step by step, with the same outcome:

    >>> state = model.init_state(model.encode(source, source_lens), source_lens)
    >>> logits, state = model.decode(torch.tensor([[1], [1]]), state)

    Linear layers start as Xavier's uniform draw with biases of zero, embeddings at a normal draw of deviation 1/√d;
    they are multiplied by √d when they are read. `source_lens` None means that no source is padded. Targets need no
    lengths, since what is padded comes last.
    """

    model_type, config_class = "regard-transformer", Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        d, heads = config.num_hiddens, config.num_heads
        is_shared = config.target_vocab_size is None and config.ties_embeddings
        target_size = config.target_vocab_size or config.vocab_size
        # None where another matrix serves: one parameter, saved under one name
        self.embedding = nn.Embedding(config.vocab_size, d, config.pad_id)
        self.target_embedding = None if is_shared else nn.Embedding(target_size, d, config.pad_id)
        self.output = None if config.ties_embeddings else nn.Linear(d, target_size, bias=False)
        self.encoder_position, self.decoder_position = _encode_positions(config), _encode_positions(config)
        rotary = Rotary(d // heads, max_len=config.max_len) if config.position == "rotary" else None
        self.encoder_bias, self.decoder_bias = _bias_positions(config, True), _bias_positions(config, False)
        sizes = d, config.ffn_num_hiddens, config.dropout
        style: dict[str, Any] = {"norm_first": config.norm_first, "activation": config.activation}
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for _ in range(config.num_encoder_layers):
            self.encoder.append(EncoderBlock(_attention(config, rotary), *sizes, **style))
        for _ in range(config.num_decoder_layers):
            self.decoder.append(DecoderBlock(_attention(config, rotary), _attention(config), *sizes, **style))
        for ffn in (x for x in self.modules() if isinstance(x, PositionWiseFFN)):
            # blocks have one rate for both places
            ffn.dropout.p = config.ffn_dropout
        norm = nn.LayerNorm if config.norm_first else nn.Identity
        self.encoder_norm, self.decoder_norm = norm(d), norm(d)
        self.apply(_start)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """The same as calling the class."""
        return cls(config)

    def forward(
        self,
        source: Int[Tensor, "batch source_positions"],
        source_lens: Tensor | None,
        target_inputs: Int[Tensor, "batch positions"],
    ) -> Float[Tensor, "batch positions vocab"]:
        return self._decode(target_inputs, self.encode(source, source_lens), source_lens, None)

    def encode(
        self, source: Int[Tensor, "batch positions"], source_lens: Tensor | None = None
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        """The encoder's outputs; rows past `source_lens` mean nothing."""
        X = self._embed(source, "source", self.embedding, self.encoder_position, 0)
        # all layers ask for the same lengths
        vouch(source_lens, 0, source.shape[1])
        bias = None if self.encoder_bias is None else self.encoder_bias()
        for block in self.encoder:
            X = block(X, source_lens, bias=bias)
        out: Tensor = self.encoder_norm(X)
        return out

    def init_state(self, enc_outputs: Tensor, enc_valid_lens: Tensor | None = None) -> TransformerState:
        """The state before the first step; `enc_valid_lens` are the lengths that `encode` was given."""
        caches, rows = [(Cache(), Cache(is_static=True)) for _ in self.decoder], torch.arange(len(enc_outputs))
        return TransformerState(enc_outputs, enc_valid_lens, caches, rows.to(enc_outputs.device))

    def decode(self, X: Int[Tensor, "batch positions"], state: TransformerState) -> tuple[Tensor, TransformerState]:
        """The logits (batch, positions, vocab) after the new positions X, and the state, carried on in place."""
        return self._decode(X, state.memory, state.memory_valid_lens, state.caches), state

    def reorder(self, state: TransformerState, indices: Tensor) -> TransformerState:
        """The state, in which sequence s goes on from what sequence `indices[s]` has so far, in place."""
        return state.take(indices)

    @property
    def attention_weights(self) -> dict[str, tuple[Tensor | None, ...]]:
        """Those of the last call, a tensor for each layer: "encoder" and "decoder" to themselves, "cross" between."""
        encoder, pairs = ([block.attention_weights for block in x] for x in (self.encoder, self.decoder))
        own, other = zip(*pairs, strict=True)
        return {"encoder": tuple(encoder), "decoder": own, "cross": other}

    def _decode(self, X: Tensor, memory: Tensor, lens: Tensor | None, caches: Caches | None) -> Tensor:
        embedding = self.embedding if self.target_embedding is None else self.target_embedding
        Y = self._embed(X, "target", embedding, self.decoder_position, caches[0][0].length if caches else 0)
        if len(Y) != len(memory):
            raise RegardError(f"Transformer needs a target for each source, got {len(Y)} and {len(memory)} sequences.")
        bias = None if self.decoder_bias is None else self.decoder_bias()
        for i, block in enumerate(self.decoder):
            Y = block(Y, memory, lens, bias=bias, caches=None if caches is None else caches[i])
        weight = embedding.weight if self.output is None else self.output.weight
        return functional.linear(self.decoder_norm(Y), weight)

    def _embed(self, ids: Tensor, name: str, embedding: nn.Embedding, position: nn.Module, offset: int) -> Tensor:
        if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
            raise RegardError(f"Transformer {name} must be int64 or int32 (batch, positions), got {_describe(ids)}.")
        # a look at the numbers would make a GPU wait; its own kernel stops at an id that is none
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():
            last = embedding.num_embeddings - 1
            if problem := misfit_integers(name, ids, ids.device, 0, last, "the last of the vocabulary"):
                raise RegardError(f"Transformer {problem}")
        X = embedding(ids) * self.config.num_hiddens**0.5
        out: Tensor = position(X) if isinstance(position, nn.Dropout) else position(X, offset=offset)
        return out

    def extra_repr(self) -> str:
        return repr(self.config)


def _describe(given: object) -> str:
    kind = str(getattr(given, "dtype", "")).removeprefix("torch.")
    return f"{kind} of shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__


def _attention(config: Config, position: Rotary | None = None) -> MultiHeadAttention:
    d, heads, weigh = config.num_hiddens, config.num_heads, WEIGHS[config.weigh]()
    rate, bias, score = config.attention_dropout, config.bias, config.score
    return MultiHeadAttention(d, d, d, d, heads, rate, bias, score=score, weigh=weigh, position=position)


def _encode_positions(config: Config) -> nn.Module:
    """What adds positions to embeddings, if anything does, and drops out."""
    kinds = {"sinusoidal": PositionalEncoding, "learned": LearnedPositionalEncoding}
    if config.position in kinds:
        return kinds[config.position](config.num_hiddens, config.dropout, config.max_len)
    return nn.Dropout(config.dropout)


def _bias_positions(config: Config, two_sided: bool) -> RelativeBias | AlibiBias | None:
    if config.position == "relative":
        return RelativeBias(config.num_heads, two_sided=two_sided)
    return AlibiBias(config.num_heads) if config.position == "alibi" else None


@torch.no_grad()
def _start(module: nn.Module) -> None:
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        module.weight[module.padding_idx] = 0
    elif isinstance(module, LearnedPositionalEncoding):
        nn.init.normal_(module.P, std=module.num_hiddens**-0.5)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
