"""What an `Encoder` is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from regard.core import RegardError
from regard.models.config import NAMED, check_fields, check_heads, make_config, take_preset

HEADS = ("none", "tags", "classes", "words")
KINDS = ("attention", "gru", "cnn")
POOLINGS = ("soft", "hard", "mean", "max", "first")
SPELLINGS = ("letters", "grams", "both")
# <unk> of our own tokenizers, below which are <pad>, <bos> and <eos>
UNK = 3
_NAMED: dict[str, Collection[str]] = {**NAMED, "head": HEADS, "kind": KINDS, "pooling": POOLINGS, "spelling": SPELLINGS}

_SIZES = ("num_hiddens", "ffn_num_hiddens", "num_heads", "num_layers", "dropout")
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(zip(_SIZES, (128, 256, 4, 2, 0.2), strict=True)),
    "small": dict(zip(_SIZES, (256, 1024, 4, 4, 0.2), strict=True)),
    # BERT's own
    "base": dict(zip(_SIZES, (768, 3072, 12, 12, 0.1), strict=True)),
}


@dataclass(frozen=True)
class Config:
    """What an `Encoder` is made of, in numbers and names, so that it can be written as JSON.

    >>> Config.preset("tiny", vocab_size=9716, head="tags", labels=("NOUN", "VERB")).num_hiddens
    128

    `kind` is what mixes positions: self-attention, a GRU (in both directions, half of the width each, where
    `is_bidirectional`), or a "cnn", convolutions of `kernel_size`. These two know of order by themselves: `position`
    is of attention alone, as are its `score`, `weigh`, `num_heads`, `ffn_num_hiddens` and their dropouts.

    `embed_dropout` is after the embeddings, `dropout` after each sublayer and before `output`; `attention_dropout` and
    `ffn_dropout` are within sublayers. `word_dropout` is how many words (ids above 3) training takes for <unk>, id 3,
    so that it learns what an unknown word is like; `token_dropout` hides words and their letters, as <mask>, the last
    id. `scales_embedding` multiplies embeddings by √d, as a Transformer does and BERT does not; `start_std` is the
    deviation they start with, where it is above 0. `num_characters` above 0 has words read by their letters, too:
    `spelling` by convolutions over "letters", by "grams", runs of letters in `num_grams` rows, or "both". `num_types`
    above 0 adds a vector for each type of token, as of which sentence it is. `max_len` is a limit for learned positions
    alone.

    `head` says what `forward` gives: "tags" a label of `labels` for each word, "classes" one for the sequence, "words"
    the words themselves, "none" hidden states. `pooling` makes one vector of a sequence, and `has_pooler` puts BERT's
    dense layer with tanh after it; `has_next` has the head that tells a next sentence from another.
    """

    vocab_size: int
    labels: tuple[str, ...] = ()
    head: str = "none"
    kind: str = "attention"
    num_hiddens: int = 256
    ffn_num_hiddens: int = 1024
    num_heads: int = 4
    num_layers: int = 4
    num_characters: int = 0
    spelling: str = "both"
    num_grams: int = 20_000
    kernel_size: int = 3
    is_bidirectional: bool = True
    dropout: float = 0.1
    embed_dropout: float = 0.1
    attention_dropout: float = 0.0
    ffn_dropout: float = 0.0
    word_dropout: float = 0.0
    token_dropout: float = 0.0
    norm_first: bool = False
    norm_eps: float = 1e-5
    has_embed_norm: bool = False
    scales_embedding: bool = True
    start_std: float = 0.0
    position: str = "sinusoidal"
    max_len: int = 512
    num_types: int = 0
    score: str = "dot"
    weigh: str = "softmax"
    activation: str = "gelu"
    pooling: str = "soft"
    has_pooler: bool = False
    has_next: bool = False
    pad_id: int = 0

    def __post_init__(self) -> None:
        check_fields(self, _NAMED, ("num_characters", "num_types"))
        if self.kind == "attention":
            check_heads(self.num_hiddens, self.num_heads)
        if self.kind == "gru" and self.is_bidirectional and self.num_hiddens % 2:
            raise RegardError(f"Config num_hiddens must be even for a GRU in both directions, got {self.num_hiddens}.")
        if self.kernel_size % 2 == 0:
            raise RegardError(f"Config kernel_size must be odd, got {self.kernel_size}.")
        if not 0 < self.norm_eps < 1:
            raise RegardError(f"Config norm_eps must lie between 0 and 1, got {self.norm_eps}.")
        if not 0 <= self.start_std < 10:
            raise RegardError(f"Config start_std must lie in [0, 10), got {self.start_std}.")
        if self.num_grams < 2:
            raise RegardError(f"Config num_grams must be at least 2, got {self.num_grams}.")
        if not 0 <= self.pad_id < self.vocab_size:
            raise RegardError(
                f"Config pad_id must lie in the vocabulary, 0 to {self.vocab_size - 1}, got {self.pad_id}."
            )
        for name in ("word_dropout", "token_dropout"):
            if getattr(self, name) and self.vocab_size <= UNK:
                raise RegardError(
                    f"Config {name} needs <unk>, id {UNK}, in the vocabulary, got {self.vocab_size} words."
                )
        for label in self.labels:
            if not isinstance(label, str):
                raise RegardError(f"Config labels must be texts, got {label!r:.40}.")
        if len(set(self.labels)) < len(self.labels):
            twice = next(x for x in self.labels if self.labels.count(x) > 1)
            raise RegardError(f"Config labels must differ, got {twice!r:.40} twice.")
        if self.head in ("tags", "classes") and not self.labels:
            raise RegardError(f"Config head={self.head!r} needs labels, got none.")

    @classmethod
    def preset(cls, name: str, vocab_size: int, **changes: Any) -> Self:
        """One of `PRESETS`, with changes."""
        return cls.from_dict({**take_preset(name, PRESETS), "vocab_size": vocab_size, **changes})

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` gave, as after a way through JSON."""
        return make_config(cls, entries)

    @property
    def needs_pooling(self) -> bool:
        """Whether what the pooling learns is of use."""
        return self.head == "classes" or self.has_next or self.has_pooler
