"""The config of a `Seq2Seq`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from regard.models.config import ModelConfig, check_directions, setting
from regard.score import SCORES

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embed_size": 64, "num_hiddens": 128, "num_layers": 1},
    # of the source, each direction has half of the hidden units
    "small": {"embed_size": 128, "num_hiddens": 256, "num_layers": 1, "embed_dropout": 0.3, "is_bidirectional": True},
    "base": {"embed_size": 256, "num_hiddens": 512, "num_layers": 1, "embed_dropout": 0.4, "is_bidirectional": True},
}  # fmt: skip


@dataclass(frozen=True)
class Config(ModelConfig):
    """The config of a `Seq2Seq`; `dataclasses.asdict` of it is JSON.

    >>> Config.preset("tiny", src_vocab_size=50, tgt_vocab_size=60).num_hiddens
    128
    """

    src_vocab_size: int = setting(MISSING, "tokens of the source's vocabulary")
    tgt_vocab_size: int = setting(MISSING, "tokens of the target's vocabulary")
    embed_size: int = setting(128, "width of the embeddings")
    num_hiddens: int = setting(256, "hidden units of the GRUs, and width of the attention")
    num_layers: int = setting(2, "layers of each GRU")
    dropout: float = setting(0.0, "dropout between the layers of a GRU and on the attention weights")
    embed_dropout: float = setting(0.0, "dropout on the embeddings")
    is_bidirectional: bool = setting(False, "bidirectional encoder, num_hiddens / 2 units each way")
    attention: str = setting("additive", "attention score of the decoder's state and the source", SCORES)

    presets: ClassVar[Mapping[str, dict[str, Any]]] = PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_directions(self.num_hiddens, self.is_bidirectional)
