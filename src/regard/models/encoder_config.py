"""The config of an `Encoder`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.core import RegardError
from regard.core.names import ACTIVATIONS
from regard.models.config import (
    INPUTS,
    MOST,
    POSITIONS,
    ModelConfig,
    check_directions,
    check_heads,
    check_inputs,
    setting,
)
from regard.score import SCORES
from regard.weigh import WEIGHS

HEADS = ("none", "tags", "classes", "words")
KINDS = ("attention", "gru", "cnn")
POOLINGS = ("soft", "hard", "mean", "max", "first")
SPELLINGS = ("letters", "grams", "both")
# <unk> of our own tokenizers, below which are <pad>, <bos> and <eos>
UNK = 3

_SIZES = ("num_hiddens", "ffn_num_hiddens", "num_heads", "num_layers", "dropout")
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(zip(_SIZES, (128, 256, 4, 2, 0.2), strict=True)),
    "small": dict(zip(_SIZES, (256, 1024, 4, 4, 0.2), strict=True)),
    # BERT's own
    "base": dict(zip(_SIZES, (768, 3072, 12, 12, 0.1), strict=True)),
}


# what another's trunk may lack
EXTRAS, SPELLED = ("num_characters", "num_types"), ("spelling", "num_grams")
# what it must have in common with one that begins from it
TRUNK = (
    "kind", "vocab_size", "num_hiddens", "ffn_num_hiddens", "num_heads", "num_layers", "kernel_size",
    "is_bidirectional", "norm_first", "norm_eps", "has_embed_norm", "scales_embedding", "position", "score", "weigh",
    "activation", "pad_id", "inputs", "input_size", *EXTRAS, *SPELLED,
)  # fmt: skip
# what only ids have, and what it is where there are none
OF_IDS: dict[str, Any] = {
    "vocab_size": 0, "num_characters": 0, "num_types": 0, "word_dropout": 0, "token_dropout": 0, "has_next": False,
    "pad_id": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Config(ModelConfig):
    """The config of an `Encoder`, in numbers and names, so that it can be written as JSON.

    >>> Config.preset("tiny", vocab_size=9716, head="tags", labels=("NOUN", "VERB")).num_hiddens
    128

    A GRU and a "cnn" know of order by themselves: `position` is of attention alone, as are its `score`, `weigh`,
    `num_heads`, `ffn_num_hiddens` and their dropouts. `word_dropout` is of words, ids above 3, and `token_dropout` of
    words with their letters; <unk> is id 3, <mask> the last. `head` says what `forward` gives: "tags" a label of
    `labels` for each word, "classes" one for the sequence, "words" the words themselves, "none" hidden states. Vectors
    are embedded by a linear layer: `input_size` stands for `vocab_size` then.
    """

    vocab_size: int = setting(0, "tokens of the vocabulary; 0 where inputs are vectors", least=0)
    labels: tuple[str, ...] = setting((), "the labels to predict, in order")
    head: str = setting("none", "what is predicted: a label a word, one a text, masked words, or nothing", HEADS)
    kind: str = setting("attention", "what mixes positions: self-attention, a GRU or convolutions", KINDS)
    num_hiddens: int = setting(256, "width of the hidden states (d_model)")
    ffn_num_hiddens: int = setting(1024, "width of the feed-forward layers; attention only")
    num_heads: int = setting(4, "attention heads; must divide num_hiddens; attention only")
    num_layers: int = setting(4, "number of layers")
    num_characters: int = setting(0, "characters that words are also read by; 0 for none", least=0)
    spelling: str = setting("both", "how a word's characters are read: by a CNN, by hashed n-grams, or both", SPELLINGS)
    num_grams: int = setting(20_000, "hash buckets for character n-grams", least=2, most=MOST)
    kernel_size: int = setting(3, "kernel size of the convolutions, odd; cnn only")
    is_bidirectional: bool = setting(True, "bidirectional GRU, num_hiddens / 2 units each way; gru only")
    dropout: float = setting(0.1, "dropout after each sublayer and before the output layer")
    embed_dropout: float = setting(0.1, "dropout on the embeddings")
    attention_dropout: float = setting(0.0, "dropout on the attention weights; attention only")
    ffn_dropout: float = setting(0.0, "dropout inside the feed-forward layers; attention only")
    word_dropout: float = setting(0.0, "probability that a training token is replaced by <unk>")
    token_dropout: float = setting(0.0, "probability that a training token is replaced by <mask>")
    norm_first: bool = setting(False, "layer norm before each sublayer (pre-norm), not after it (post-norm)")
    norm_eps: float = setting(1e-5, "epsilon of the layer norms", span="(0, 1)")
    has_embed_norm: bool = setting(False, "layer norm on the embeddings, as in BERT")
    scales_embedding: bool = setting(True, "multiply embeddings by sqrt(num_hiddens), as the Transformer does")
    start_std: float = setting(
        0.0, "std of the initial embeddings; 0 is 1 / sqrt(num_hiddens), or 0.02 if not scaled", span="[0, 10)"
    )
    position: str = setting("sinusoidal", "positional encoding; attention only", POSITIONS)
    max_len: int = setting(512, "maximum number of positions; a limit only where position=learned", most=MOST)
    num_types: int = setting(0, "token types (segments), as in BERT; 0 for none", least=0)
    score: str = setting("dot", "attention score of a query and a key; attention only", SCORES)
    weigh: str = setting("softmax", "how attention scores become weights; attention only", WEIGHS)
    activation: str = setting("gelu", "activation of the feed-forward layers", ACTIVATIONS)
    pooling: str = setting(
        "soft", "how a text becomes one vector: soft or hard attention, mean, max or first token", POOLINGS
    )
    has_pooler: bool = setting(False, "BERT's pooler, a dense layer with tanh, after the pooling")
    has_next: bool = setting(False, "a head for next-sentence prediction")
    pad_id: int = setting(0, "id of the padding token", least=0)
    inputs: str = setting("ids", "what is read: ids of a vocabulary, or vectors", INPUTS, since=2)
    input_size: int = setting(0, "width of the vectors that are read; 0 for ids", least=0, since=2)
    window: int | tuple[int, int] | None = setting(
        None, "window of self-attention: positions back and ahead; a number for both", least=0, most=MOST, since=2
    )

    presets: ClassVar[Mapping[str, dict[str, Any]]] = PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_inputs(self, OF_IDS)
        if self.kind == "attention":
            check_heads(self.num_hiddens, self.num_heads)
        elif self.window is not None:
            raise RegardError(f"Config window is for kind='attention', got kind={self.kind!r}: leave it out.")
        if self.kind == "gru":
            check_directions(self.num_hiddens, self.is_bidirectional)
        if self.kernel_size % 2 == 0:
            raise RegardError(f"Config kernel_size must be odd, got {self.kernel_size}.")
        if self.inputs == "vectors" and self.head == "words":
            raise RegardError("Config head='words' predicts ids, and inputs='vectors' have none: take another head.")
        if self.inputs == "ids" and self.pad_id >= self.vocab_size:
            raise RegardError(
                f"Config pad_id must lie in the vocabulary, 0 to {self.vocab_size - 1}, got {self.pad_id}."
            )
        for name in ("word_dropout", "token_dropout"):
            if getattr(self, name) and self.vocab_size <= UNK:
                raise RegardError(
                    f"Config {name} needs <unk>, id {UNK}, in the vocabulary, got {self.vocab_size} words."
                )
        if len(set(self.labels)) < len(self.labels):
            twice = next(x for x in self.labels if self.labels.count(x) > 1)
            raise RegardError(f"Config labels must differ, got {twice!r:.40} twice.")
        if self.head in ("tags", "classes") and not self.labels:
            raise RegardError(f"Config head={self.head!r} needs labels, got none.")

    @property
    def needs_pooling(self) -> bool:
        """Whether what the pooling learns is used."""
        return self.head == "classes" or self.has_next or self.has_pooler
