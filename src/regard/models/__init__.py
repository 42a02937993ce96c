"""Whole models, ready to fit; each is imported when first named, since some need an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.lazy import export

if TYPE_CHECKING:
    from regard.models.bert import Bert
    from regard.models.encoder import Encoder
    from regard.models.nadaraya_watson import NadarayaWatson
    from regard.models.pretrained import Pretrained, load_pretrained
    from regard.models.seq2seq import Seq2Seq, Seq2SeqAttentionDecoder, Seq2SeqEncoder
    from regard.models.transformer import Transformer

__all__ = [
    "Bert", "Encoder", "NadarayaWatson", "Pretrained", "Seq2Seq", "Seq2SeqAttentionDecoder", "Seq2SeqEncoder",
    "Transformer", "load_pretrained",
]  # fmt: skip

__getattr__, __dir__ = export(
    __name__,
    {
        "Bert": "bert", "Encoder": "encoder", "NadarayaWatson": "nadaraya_watson", "Pretrained": "pretrained",
        "Seq2Seq": "seq2seq", "Seq2SeqAttentionDecoder": "seq2seq", "Seq2SeqEncoder": "seq2seq",
        "Transformer": "transformer", "load_pretrained": "pretrained",
    },
)  # fmt: skip
