"""What a Seq2Seq, its parts and its config refuse, in words."""

from __future__ import annotations

import pytest
import torch

from regard import RegardError
from regard.layers import (
    DotProductAttention,
    MultiHeadAttention,
)  # fmt: skip
from regard.models.seq2seq import Config, Encoded, Seq2Seq, Seq2SeqAttentionDecoder, Seq2SeqEncoder
from regard.score import SCORES
from regard.weigh import Hard
from tests.models.test_seq2seq import SIZES, B, M, N, build, tokens


def call(name: str):
    model = build()
    memory, hidden = model.encoder(tokens(B, M))
    return {
        "sizes": lambda: Seq2SeqEncoder(0, 3, 5, 1),
        "rate": lambda: Seq2SeqAttentionDecoder(*SIZES, 1.5),
        "odd": lambda: Seq2SeqEncoder(11, 3, 5, 1, is_bidirectional=True),
        "layer": lambda: Seq2SeqAttentionDecoder(*SIZES, attention=MultiHeadAttention(5, 5, 5, 5, 1)),
        "draws": lambda: Seq2SeqAttentionDecoder(*SIZES, attention=DotProductAttention(weigh=Hard("sample"))),
        "outputs": lambda: model.decoder.init_state((memory, hidden)),
        "alone": lambda: model.decoder.init_state(memory),
        "batch": lambda: model.decoder(tokens(2, N), model.encode(tokens(B, M))),
        "axes": lambda: model.encoder(tokens(M)),
        "list": lambda: model.encoder([[1, 2]]),
        "empty": lambda: model.decoder(tokens(B, 0), model.encode(tokens(B, M))),
        "dtype": lambda: model.encoder(tokens(B, M).float()),
        "range": lambda: model.encoder(tokens(B, M) + 11),
        "below": lambda: model.encoder(tokens(B, M) - 11),
        "lens": lambda: model.encoder(tokens(B, M), torch.tensor([1, 2])),
        "no tensor": lambda: model.decoder.init_state(Encoded(memory, hidden), [1, 2, 3]),
        "long": lambda: model.encoder(tokens(B, M), torch.tensor([1, 2, 8])),
        "preset": lambda: Config.preset("huge", 3, 4),
        "unknown": lambda: Config.preset("tiny", 3, 4, heads=2),
        "missing": lambda: Config.from_dict({"src_vocab_size": 3}),
        "kind": lambda: Config(3, "4"),
        "truth": lambda: Config(3, 4, num_layers=True),
        "score": lambda: Seq2Seq.from_config(Config(3, 4, attention="luong")),
    }[name]


MESSAGES = {
    "sizes": "Seq2SeqEncoder vocab_size must be at least 1, got 0.",
    "rate": "Seq2SeqAttentionDecoder dropout must lie in [0, 1), got 1.5.",
    "odd": "Seq2SeqEncoder num_hiddens must be even where is_bidirectional, got 5.",
    "layer": (
        "Seq2SeqAttentionDecoder attention must be a layer with a score, as AdditiveAttention or DotProductAttention,"
        " got MultiHeadAttention."
    ),
    "draws": "Seq2SeqAttentionDecoder attention must not draw its weights, got weigh=Hard(how='sample').",
    "outputs": (
        "Seq2SeqAttentionDecoder enc_outputs must be (source, batch, 5) and (2, batch, 5), or as Seq2SeqEncoder"
        " returned them, got shapes (3, 7, 5) and (2, 3, 5)."
    ),
    "alone": (
        "Seq2SeqAttentionDecoder enc_outputs must be a pair, an encoder's outputs and its hidden state, got Tensor."
    ),
    "batch": "Seq2SeqAttentionDecoder X and state must share their batch: got 2 and 3.",
    "axes": "Seq2SeqEncoder X must be token ids (batch, steps), at least one of each, got shape (7,).",
    "list": "Seq2SeqEncoder X must be token ids (batch, steps), at least one of each, got list.",
    "empty": "Seq2SeqAttentionDecoder X must be token ids (batch, steps), at least one of each, got shape (3, 0).",
    "dtype": "Seq2SeqEncoder X must be int64 or int32, got float32.",
    "range": "Seq2SeqEncoder X must lie in [0, vocab_size=11), got token 21.",
    "below": "Seq2SeqEncoder X must lie in [0, vocab_size=11), got token -11.",
    "lens": "Seq2SeqEncoder valid_lens must be one length for each sequence, (3,), got shape (2,).",
    "no tensor": "Seq2SeqAttentionDecoder enc_valid_lens must be one length for each sequence, (3,), got list.",
    "long": "Seq2SeqEncoder valid_lens must be at most 7 (the number of source positions), got 8.",
    "preset": "Config preset must be one of 'tiny', 'small', 'base', got 'huge'.",
    "unknown": (
        "Config has no 'heads'; it has src_vocab_size, tgt_vocab_size, embed_size, num_hiddens, num_layers,"
        " dropout, embed_dropout, is_bidirectional, attention."
    ),
    "missing": "Config needs 'tgt_vocab_size', got src_vocab_size.",
    "kind": "Config tgt_vocab_size must be int, got '4'.",
    "truth": "Config num_layers must be int, got True.",
    "score": f"Config attention must be one of {', '.join(map(repr, SCORES))}, got 'luong'.",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_message_is_pinned(name):
    with pytest.raises(RegardError) as error:
        call(name)()
    assert str(error.value) == MESSAGES[name]
