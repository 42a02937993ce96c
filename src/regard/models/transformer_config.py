"""The config of a `Transformer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from regard.core import RegardError
from regard.core.names import ACTIVATIONS
from regard.models.config import INPUTS, MOST, POSITIONS, ModelConfig, check_heads, check_inputs, setting
from regard.score import SCORES
from regard.weigh import WEIGHS

_SIZES = ("num_hiddens", "ffn_num_hiddens", "num_heads", "num_encoder_layers", "num_decoder_layers", "dropout")
PRESETS: dict[str, dict[str, Any]] = {
    # the text-only baseline of Multi30k
    "tiny": dict(zip(_SIZES, (128, 256, 4, 4, 4, 0.3), strict=True)),
    "small": dict(zip(_SIZES, (256, 1024, 8, 3, 3, 0.2), strict=True)),
    # the paper's own
    "base": dict(zip(_SIZES, (512, 2048, 8, 6, 6, 0.1), strict=True)),
}


@dataclass(frozen=True)
class Config(ModelConfig):
    """The config of a `Transformer`, in numbers and names, so that it can be written as JSON.

    >>> Config.preset("tiny", vocab_size=9716).num_hiddens
    128

    `target_vocab_size` None means that source and target share one vocabulary, and with `ties_embeddings` one matrix.
    With `norm_first` both stacks end in a norm. Relative positions are shared by the layers of a stack, as in T5. A
    source of vectors, as speech and images are, has no vocabulary: there is the target's alone. A decoder never looks
    ahead: its window is that of the encoder without what is ahead.
    """

    vocab_size: int = setting(MISSING, "tokens of the source's vocabulary; of the target's where inputs are vectors")
    target_vocab_size: int | None = setting(None, "tokens of the target's vocabulary; null where it is shared")
    num_hiddens: int = setting(512, "width of the hidden states (d_model)")
    ffn_num_hiddens: int = setting(2048, "width of the feed-forward layers")
    num_heads: int = setting(8, "attention heads; must divide num_hiddens")
    num_encoder_layers: int = setting(6, "layers of the encoder")
    num_decoder_layers: int = setting(6, "layers of the decoder")
    dropout: float = setting(0.1, "dropout on the embeddings and after each sublayer")
    attention_dropout: float = setting(0.0, "dropout on the attention weights")
    ffn_dropout: float = setting(0.0, "dropout inside the feed-forward layers")
    bias: bool = setting(True, "bias in the linear layers of attention")
    norm_first: bool = setting(False, "layer norm before each sublayer (pre-norm), not after it (post-norm)")
    ties_embeddings: bool = setting(True, "share the target's embeddings with the output layer (and with the source's)")
    position: str = setting("sinusoidal", "positional encoding", POSITIONS)
    score: str = setting("dot", "attention score of a query and a key", SCORES)
    weigh: str = setting("softmax", "how attention scores become weights", WEIGHS)
    activation: str = setting("relu", "activation of the feed-forward layers", ACTIVATIONS)
    pad_id: int = setting(0, "id of the padding token", least=0)
    max_len: int = setting(1024, "maximum number of positions; a limit only where position=learned", most=MOST)
    inputs: str = setting("ids", "what the source is: ids of a vocabulary, or vectors", INPUTS, since=2)
    input_size: int = setting(0, "width of the source's vectors; 0 for ids", least=0, since=2)
    window: int | tuple[int, int] | None = setting(
        None, "window of self-attention: positions back and ahead; a number for both", least=0, most=MOST, since=2
    )

    presets: ClassVar[Mapping[str, dict[str, Any]]] = PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_inputs(self, {"target_vocab_size": None})
        check_heads(self.num_hiddens, self.num_heads)
        smallest = min(self.vocab_size, self.target_vocab_size or self.vocab_size)
        if self.pad_id >= smallest:
            raise RegardError(f"Config pad_id must lie in each vocabulary, 0 to {smallest - 1}, got {self.pad_id}.")
