"""Readers small enough to be made for every test, with weights drawn at random."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch

from regard.data.wordpiece import SPECIAL, WordPiece
from regard.models.encoder import Encoder
from regard.tasks.reading.encoder_job import EncoderJob
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.classify import ClassifyJob
from regard.tasks.text.tag import TagJob

TINY: dict[str, Any] = {"num_hiddens": 8, "ffn_num_hiddens": 8, "num_heads": 2, "num_layers": 1, "num_grams": 50}
# as large as to choose at all
LOUD: dict[str, Any] = {**TINY, "scales_embedding": False, "start_std": 2.0}
TAGS, MOODS = ("DET", "NOUN", "PUNCT", "VERB"), ("bad", "good")
# (words, tags)
TAGGED = [
    (("the", "cat", "sat", "."), ("DET", "NOUN", "VERB", "PUNCT")),
    (("cats", "looking"), ("NOUN", "VERB")),
    (("the", "the"), ("DET", "NOUN")),
    (("looking", "there", "!", "the", "cat"), ("VERB", "NOUN", "PUNCT", "DET", "NOUN")),
    (("sat",), ("VERB",)),
]
# (text, label)
LABELLED = [
    ("the cat sat", "good"), ("looking there", "bad"), ("a", "good"), ("the cat looking there!", "good"), ("", "bad"),
]  # fmt: skip
VOCAB = {
    token: number for number, token in enumerate([*SPECIAL, "look", "##ing", "there", "!", "the", "cat", "##s", "sat"])
}


def read_pieces() -> Lexicon:
    return Lexicon(WordPiece.from_vocab(VOCAB))


def make(kind: type[EncoderJob], **changes: Any) -> EncoderJob:
    """A job of a tiny model; what is no setting of a job is one of its model."""
    own = {name: changes.pop(name) for name in [*changes] if name in [x.name for x in fields(kind)]}
    return kind(changes={**LOUD, **changes}, batch_size=2, **own)


def build(job: EncoderJob, lexicon: Lexicon | None = None) -> tuple[Encoder, Lexicon]:
    """A model for a job, that has learned nothing yet."""
    lexicon = lexicon or job.train_lexicon([text for text, _ in (TAGGED if job.is_worded else LABELLED)])
    torch.manual_seed(0)
    return job.build(lexicon, TAGS if job.is_worded else MOODS).eval(), lexicon


def save(job: EncoderJob, folder: Any, **training: Any) -> tuple[Encoder, Lexicon]:
    """The same as the folder of a run."""
    model, lexicon = build(job)
    lexicon.save(folder)
    model.save_pretrained(folder, training={"task": job.task, **training})
    return model, lexicon


tag_job, mood_job = make(TagJob), make(ClassifyJob)
