"""An encoder (Transformer, GRU or CNN) with a head: tags, classes, masked words, or none; and pooling to a vector.

Its Transformer is https://arxiv.org/abs/1706.03762, its heads those of https://arxiv.org/abs/1810.04805.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.blocks import EncoderBlock, PositionWiseFFN
from regard.layers.conv_layers import ConvLayers
from regard.layers.grams import Grams
from regard.layers.inputs import check_rows
from regard.layers.padding import clear_padding, find_valid
from regard.layers.pooling import AttentionPooling, reduce_rows
from regard.layers.recurrent import GRULayers
from regard.layers.spelling import Spelling
from regard.mask import Allowed
from regard.mask.integer import assert_range
from regard.models.encoder_config import EXTRAS, HEADS, KINDS, POOLINGS, PRESETS, SPELLED, SPELLINGS, TRUNK, UNK, Config
from regard.models.parts import (
    bias_positions,
    build_attention,
    build_rotary,
    build_window,
    check_given,
    check_ids,
    encode_positions,
    initialise,
    initialise_vectors,
)
from regard.models.pretrained import Pretrained
from regard.models.word_head import WordHead

__all__ = ["HEADS", "KINDS", "POOLINGS", "PRESETS", "Config", "Encoder"]

# a model's own, whatever it adopts
_HEADS = ("pooling.", "output.", "words.", "next_sentence.")


class Encoder(Pretrained):
    """An encoder of sequences, with a head for what it predicts.

    >>> model = Encoder(Config.preset("tiny", vocab_size=100, head="tags", labels=("NOUN", "VERB", "X"))).eval()
    >>> ids, lens = torch.tensor([[5, 6, 7, 0], [8, 9, 10, 11]]), torch.tensor([3, 4])
    >>> model(ids, lens).shape
    torch.Size([2, 4, 3])

    Which positions are of a sequence is said by `valid_lens` (batch,), or by `mask` (batch, positions), True = a token,
    where padding is not at the end; None means that nothing is padded. Padding influences no result. Attention and its
    window count positions with what is padded between them, a GRU and a CNN without.

    With `inputs="vectors"` it is given vectors in place of ids, (batch, positions, input_size); what is padded may hold
    anything, NaN too.

    Linear layers start as Xavier's uniform draw with biases of zero, embeddings at a normal draw, of deviation 1/√d
    where they are scaled and 0.02 where not.
    """

    model_type, config_class = "regard-encoder", Config
    layers: nn.ModuleList

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        d = config.num_hiddens
        self.embedding: nn.Embedding | nn.Linear
        if config.inputs == "ids":
            self.embedding = nn.Embedding(config.vocab_size, d, config.pad_id)
        else:
            # no bias: of one-hot vectors it makes what a table makes of ids
            self.embedding = nn.Linear(config.input_size, d, bias=False)
        self.type_embedding = nn.Embedding(config.num_types, d) if config.num_types else None
        attends = config.kind == "attention"
        self.position = encode_positions(config, 0.0) if attends else None
        self.embed_norm = nn.LayerNorm(d) if config.has_embed_norm else nn.Identity()
        self.embed_dropout, self.dropout = nn.Dropout(config.embed_dropout), nn.Dropout(config.dropout)
        self.bias = bias_positions(config, True) if attends else None
        self.window = build_window(config)
        self.layers = nn.ModuleList(_build_layers(config))
        self.norm = nn.LayerNorm(d) if config.norm_first and config.kind != "gru" else nn.Identity()
        self.output = nn.Linear(d, len(config.labels)) if config.head in ("tags", "classes") else None
        self.words = WordHead(d, config.vocab_size, config.activation) if config.head == "words" else None
        self.pooler = nn.Linear(d, d) if config.has_pooler else None
        self.next_sentence = nn.Linear(d, 2) if config.has_next else None
        std = config.start_std or (None if config.scales_embedding else 0.02)
        self.apply(lambda module: initialise(module, std))
        # these start in their own way
        if isinstance(self.embedding, nn.Linear):
            initialise_vectors(self.embedding, std or d**-0.5)
        has_letters, has_grams = (config.num_characters > 0 and config.spelling in (x, "both") for x in SPELLINGS[:2])
        self.spelling = Spelling(config.num_characters, d) if has_letters else None
        self.grams = Grams(config.num_grams, d) if has_grams else None
        if self.grams is not None:
            # as large as what they are added to
            initialise(self.grams.embedding, (std or d**-0.5) * (d**0.5 if config.scales_embedding else 1.0))
        learns = config.needs_pooling and config.pooling in ("soft", "hard")
        self.pooling = AttentionPooling(d, config.pooling) if learns else None
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = config.norm_eps
            elif isinstance(module, PositionWiseFFN):
                # blocks have one rate for both places
                module.dropout.p = config.ffn_dropout

    def forward(
        self,
        ids: Int[Tensor, "batch positions"] | Float[Tensor, "batch positions input_size"],
        valid_lens: Tensor | None = None,
        *,
        spelling: Int[Tensor, "batch positions letters"] | None = None,
        types: Int[Tensor, "batch positions"] | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The head's output: hidden states, (batch, positions, labels), (batch, labels), (batch, positions, vocab)."""
        hidden = self.encode(ids, valid_lens, spelling=spelling, types=types, mask=mask)
        return self._read_out(hidden, find_valid(self, hidden, valid_lens, mask))

    def encode(
        self,
        ids: Int[Tensor, "batch positions"] | Float[Tensor, "batch positions input_size"],
        valid_lens: Tensor | None = None,
        *,
        spelling: Int[Tensor, "batch positions letters"] | None = None,
        types: Int[Tensor, "batch positions"] | None = None,
        mask: Tensor | None = None,
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        """The hidden states; rows of padding are zeros. `types` None means all are of type 0."""
        check_given(self, self.config.inputs, ids, self.embedding)
        # all layers ask for the same lengths
        assert_range(valid_lens, 0, ids.shape[1])
        valid = find_valid(self, ids, valid_lens, mask)
        X = self._embed(ids, spelling, types, valid)
        if self.config.kind != "attention":
            return self._walk(X, valid_lens, mask, valid)
        terms: dict[str, Any] = {} if self.bias is None else {"bias": self.bias()}
        if self.window is not None:
            terms["mask"] = self.window
        if mask is not None and valid is not None:
            valid_lens, seen = None, Allowed(valid[:, None, None])
            terms["mask"] = seen if self.window is None else self.window & seen
        for block in self.layers:
            X = block(X, valid_lens, **terms)
        return clear_padding(self.norm(X), valid)

    def pool(
        self, hidden: Float[Tensor, "batch positions num_hiddens"], valid_lens: Tensor | None = None, *,
        mask: Tensor | None = None,
    ) -> Float[Tensor, "batch num_hiddens"]:  # fmt: skip
        """Pool each sequence into one vector, by `config.pooling`; an empty one into zeros, before the pooler."""
        check_rows(self, hidden, "hidden", "num_hiddens", self.config.num_hiddens)
        return self._pool(hidden, find_valid(self, hidden, valid_lens, mask))

    def read_out(
        self, hidden: Float[Tensor, "batch positions num_hiddens"], valid_lens: Tensor | None = None, *,
        mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """The head's output for hidden states."""
        check_rows(self, hidden, "hidden", "num_hiddens", self.config.num_hiddens)
        return self._read_out(hidden, find_valid(self, hidden, valid_lens, mask))

    def predict_words(self, hidden: Float[Tensor, "*positions num_hiddens"]) -> Float[Tensor, "*positions vocab"]:
        """Masked language modelling: logits of the word at each position, or of chosen rows alone."""
        if self.words is None:
            raise RegardError(f"Encoder with head={self.config.head!r} predicts no words: make it with head='words'.")
        out: Tensor = self.words(hidden, self.embedding.weight)
        return out

    def predict_next(
        self, hidden: Float[Tensor, "batch positions num_hiddens"], valid_lens: Tensor | None = None, *,
        mask: Tensor | None = None,
    ) -> Float[Tensor, "batch 2"]:  # fmt: skip
        """Next-sentence prediction: logits of the second text following the first, and of its being another."""
        if self.next_sentence is None:
            raise RegardError("Encoder has no head for the next sentence: make it with has_next=True.")
        out: Tensor = self.next_sentence(self.pool(hidden, valid_lens, mask=mask))
        return out

    @torch.no_grad()
    def adopt(self, other: Encoder) -> list[str]:
        """Copy the weights of another encoder but for its heads; returns the names of weights that stay as they were.

        The trunks must be of the same make; letters and types may be new.
        """
        if not isinstance(other, Encoder):
            raise RegardError(f"Encoder adopts the weights of an Encoder, got {type(other).__name__}.")
        for name in TRUNK:
            mine, theirs = getattr(self.config, name), getattr(other.config, name)
            is_new = (name in EXTRAS and theirs == 0) or (name in SPELLED and other.config.num_characters == 0)
            if mine != theirs and not is_new:
                raise RegardError(
                    f"Encoder cannot adopt: its {name} is {mine!r}, the other's {theirs!r}; make them equal."
                )
        found, own = other.state_dict(), self.state_dict()
        shared = [name for name in own if name in found and not name.startswith(_HEADS)]
        for name in shared:
            if own[name].shape != found[name].shape:
                shapes = f"{tuple(own[name].shape)}, the other's {tuple(found[name].shape)}"
                raise RegardError(f"Encoder cannot adopt: its {name} is {shapes}; make them equal.")
        for name in shared:
            own[name].copy_(found[name])
        return [name for name in own if name not in shared]

    @property
    def attention_weights(self) -> dict[str, tuple[Tensor | None, ...]]:
        """The attention weights of the last call: "encoder", one for each layer, and "pooling", where it learns."""
        blocks = [x for x in self.layers if isinstance(x, EncoderBlock)]
        pooling = () if self.pooling is None else (self.pooling.attention_weights,)
        return {"encoder": tuple(x.attention_weights for x in blocks), "pooling": pooling}

    def _embed(self, ids: Tensor, spelling: Tensor | None, types: Tensor | None, valid: Tensor | None) -> Tensor:
        config = self.config
        if (spelling is None) != (config.num_characters == 0):
            have = "needs spelling" if spelling is None else "takes no spelling"
            raise RegardError(f"Encoder with num_characters={config.num_characters} {have}.")
        if spelling is not None:
            self._check_shape("spelling", spelling, ids)
            # spellings of padding would be summed into gradients, in an order that follows from the padding
            spelling = clear_padding(spelling, valid)
        if config.inputs == "vectors":
            # whatever stands in padding would reach the gradient of the layer
            ids = clear_padding(ids, valid)
        elif self.training:
            ids, spelling = self._hide(ids, spelling)
        X: Tensor = self.embedding(ids)
        if config.scales_embedding:
            X = X * config.num_hiddens**0.5
        for module in (self.spelling, self.grams):
            if module is not None:
                X = X + module(spelling)
        if types is not None:
            if self.type_embedding is None:
                raise RegardError("Encoder with num_types=0 takes no types.")
            check_ids("Encoder", "types", types, config.num_types, "the last of the types")
            self._check_shape("types", types, ids)
            X = X + self.type_embedding(types)
        elif self.type_embedding is not None:
            X = X + self.type_embedding.weight[0]
        if self.position is not None:
            X = self.position(X)
        out: Tensor = self.embed_dropout(self.embed_norm(X))
        return out

    def _hide(self, ids: Tensor, spelling: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Word and token dropout: some ids become <unk>, some <mask>."""
        if not self.config.word_dropout and not self.config.token_dropout:
            return ids, spelling
        words = ids > UNK
        if self.config.word_dropout:
            ids = ids.masked_fill((torch.rand(ids.shape, device=ids.device) < self.config.word_dropout) & words, UNK)
        if self.config.token_dropout:
            is_hidden = (torch.rand(ids.shape, device=ids.device) < self.config.token_dropout) & words
            ids = ids.masked_fill(is_hidden, self.config.vocab_size - 1)
            spelling = None if spelling is None else spelling.masked_fill(is_hidden[..., None], 0)
        return ids, spelling

    def _check_shape(self, name: str, given: Tensor, ids: Tensor) -> None:
        shape = tuple(getattr(given, "shape", ()))
        if shape[:2] != tuple(ids.shape):
            raise RegardError(
                f"Encoder {name} must have the (batch, positions)={tuple(ids.shape)} of ids, got {shape}."
            )

    def _walk(self, X: Tensor, valid_lens: Tensor | None, mask: Tensor | None, valid: Tensor | None) -> Tensor:
        """Apply layers that have no mask (GRU, CNN): tokens move up to where padding stands between them, then back."""
        back = None
        if mask is not None and valid is not None:
            order = (~valid).long().argsort(dim=1, stable=True)
            X, back, valid_lens = _take(X, order), order.argsort(dim=1), valid.sum(1)
            assert_range(valid_lens, 0, X.shape[1])
        for layer in self.layers:
            X = layer(X, valid_lens)
        X = clear_padding(self.norm(X if back is None else _take(X, back)), valid)
        return X

    def _pool(self, hidden: Tensor, valid: Tensor | None) -> Tensor:
        how = self.config.pooling
        if how in ("soft", "hard"):
            if self.pooling is None:
                raise RegardError(
                    f"Encoder with head={self.config.head!r} learns no {how} pooling: take pooling='mean'."
                )
            out: Tensor = self.pooling(hidden, mask=valid)
        else:
            out = reduce_rows(hidden, valid, how)
        return out if self.pooler is None else torch.tanh(self.pooler(out))

    def _read_out(self, hidden: Tensor, valid: Tensor | None) -> Tensor:
        if self.output is not None:
            rows = self._pool(hidden, valid) if self.config.head == "classes" else clear_padding(hidden, valid)
            out: Tensor = self.output(self.dropout(rows))
            return out
        hidden = clear_padding(hidden, valid)
        return hidden if self.words is None else self.predict_words(hidden)

    def extra_repr(self) -> str:
        return repr(self.config)


def _build_layers(config: Config) -> list[nn.Module]:
    d, style = config.num_hiddens, {"norm_first": config.norm_first, "activation": config.activation}
    if config.kind == "gru":
        return [GRULayers(d, config.num_layers, config.dropout, is_bidirectional=config.is_bidirectional)]
    if config.kind == "cnn":
        options: Any = {**style, "kernel_size": config.kernel_size}
        return [ConvLayers(d, config.num_layers, config.dropout, **options)]
    sizes, rotary, styled = (d, config.ffn_num_hiddens, config.dropout), build_rotary(config), dict[str, Any](style)
    return [EncoderBlock(build_attention(config, True, rotary), *sizes, **styled) for _ in range(config.num_layers)]


def _take(rows: Tensor, order: Tensor) -> Tensor:
    """The rows of each sequence in this order."""
    return rows.gather(1, order[..., None].expand(rows.shape))
