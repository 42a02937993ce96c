"""Models: encoders, encoder-decoders, kernel regression; each imported when first named, since some need an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.lazy import export
from regard.models.layout import MODELS

if TYPE_CHECKING:
    # for type checkers alone: a model of MODELS is found without a line here
    from regard.models.bert import Bert as Bert
    from regard.models.encoder import Encoder as Encoder
    from regard.models.nadaraya_watson import NadarayaWatson as NadarayaWatson
    from regard.models.pretrained import Pretrained as Pretrained
    from regard.models.pretrained import load_pretrained as load_pretrained
    from regard.models.seq2seq import Seq2Seq as Seq2Seq
    from regard.models.seq2seq import Seq2SeqAttentionDecoder as Seq2SeqAttentionDecoder
    from regard.models.seq2seq import Seq2SeqEncoder as Seq2SeqEncoder
    from regard.models.transformer import Transformer as Transformer

_HOMES = {
    "Bert": "bert", "NadarayaWatson": "nadaraya_watson", "Pretrained": "pretrained",
    "Seq2SeqAttentionDecoder": "seq2seq", "Seq2SeqEncoder": "seq2seq", "load_pretrained": "pretrained",
} | {name: home.rpartition(".")[2] for home, _, name in (x.partition(":") for x in MODELS.values())}  # fmt: skip
__all__ = [*_HOMES]
__getattr__, __dir__ = export(__name__, _HOMES)
