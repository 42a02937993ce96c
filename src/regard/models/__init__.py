"""Whole models, ready to fit; each is imported when first named, since some need an extra."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

_FILES = {
    "Bert": "bert",
    "Encoder": "encoder",
    "NadarayaWatson": "nadaraya_watson",
    "Pretrained": "pretrained",
    "load_pretrained": "pretrained",
    "Seq2Seq": "seq2seq",
    "Seq2SeqAttentionDecoder": "seq2seq",
    "Seq2SeqEncoder": "seq2seq",
    "Transformer": "transformer",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
    # the next look does not come here
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
