"""Translators small enough to be made for every test, with weights drawn at random."""

from __future__ import annotations

import torch

from regard.data import Tokenizer, train_tokenizer
from regard.data.phrasebook import draw_pairs
from regard.models import seq2seq, transformer
from regard.tasks.text.translator import Translator

PAIRS = draw_pairs(400)
SOURCES, TARGETS = ([pair[i] for pair in PAIRS] for i in (0, 1))


def train(texts: list[str], kind: str) -> Tokenizer:
    return train_tokenizer(texts, kind=kind)  # type: ignore[arg-type]


def build(kind: str = "seq2seq", joiner: str | None = None, *, ends: float = 0.0, **changes) -> Translator:
    """A translator; `ends` makes <eos> likelier, so that sentences of many lengths are said."""
    torch.manual_seed(3)
    source, target = train(SOURCES, "characters"), train(TARGETS, "words")
    sizes = source.vocab_size, target.vocab_size
    if kind == "seq2seq":
        config = {"embed_size": 6, "num_hiddens": 10, "num_layers": 1, **changes}
        model = seq2seq.Seq2Seq.from_config(seq2seq.Config(*sizes, **config))
        with torch.no_grad():
            model.decoder.dense.bias[2] += ends
    else:
        config = {"num_hiddens": 12, "ffn_num_hiddens": 10, "num_heads": 3, "num_encoder_layers": 1,
                  "num_decoder_layers": 2, "ties_embeddings": False, **changes}  # fmt: skip
        model = transformer.Transformer(transformer.Config(*sizes, **config))
        with torch.no_grad():
            model.output.weight[2] *= 1 + ends
    # random weights are too much alike to choose
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return Translator(model.eval(), source, target, joiner)
