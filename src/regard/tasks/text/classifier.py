"""A trained text classifier: a label for each text, with probabilities."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from regard.models.encoder import Encoder
from regard.tasks.metrics.labels import report_labels
from regard.tasks.metrics.result import Bar, Result, hide, time_answers
from regard.tasks.reading.predict import find_logits
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.reading.warm_start import find_limit, limit_length, load_labeller


@dataclass(frozen=True)
class Classified:
    """The prediction for one text: its label, of probability `score`; `scores` has that of every label."""

    text: str
    label: str
    score: float
    scores: dict[str, float] = field(repr=False)
    unknown: int = 0
    # tokens beyond max_length, which were not read
    num_left_out: int = field(default=0, repr=False)
    # tokens that were
    num_tokens: int = field(default=0, repr=False, compare=False)


class Classifier:
    """A trained text classifier: an encoder and its tokenizer.

    >>> from regard.models.encoder import Config
    >>> lexicon = Lexicon.train(["good film", "bad film"], "words")
    >>> config = Config.preset("tiny", lexicon.vocab_size, head="classes", labels=("bad", "good"))
    >>> (found,) = Classifier(Encoder(config).eval(), lexicon).classify(["good"])
    >>> found.label in ("bad", "good"), sorted(found.scores)
    (True, ['bad', 'good'])

    Of a text with more than `max_length` tokens the first are read.
    """

    def __init__(self, model: Encoder, lexicon: Lexicon, max_length: int | None = None) -> None:
        self.model, self.lexicon, self.max_length = model, lexicon, limit_length(max_length, model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Classifier:
        """Load the classifier of a run; "auto" is a GPU where there is one."""
        root = pathlib.Path(folder)
        model, lexicon = load_labeller(root, device, "classes")
        return cls(model, lexicon, find_limit(root, model))

    def classify(
        self, texts: Sequence[str], *, batch_size: int = 64, on_progress: Callable[[int, int], None] | None = None
    ) -> list[Classified]:
        """Predict a label for each text."""
        encoded = self.lexicon.encode_texts(texts, self.max_length)
        logits = find_logits(self.model, encoded, batch_size=batch_size, on_progress=on_progress)
        labels, found = self.model.config.labels, []
        for text, one, row in zip(texts, encoded, logits, strict=True):
            scores = dict(zip(labels, row.softmax(-1).tolist(), strict=True))
            best = labels[int(row.argmax())]
            unknown = one.ids.count(self.lexicon.unk_id)
            found.append(Classified(text, best, scores[best], scores, unknown, one.num_left_out, len(one.ids)))
        return found


def score_classifier(
    run: str | os.PathLike[str], asked: Sequence[Any], *, device: str = "auto", batch_size: int = 64, bar: Bar = hide
) -> Result:
    """Evaluate a run on labelled texts: accuracy and F1, also of each label."""
    classifier = Classifier.load(run, device)
    texts, right = ([pair[i] for pair in asked] for i in (0, 1))
    found, seconds = time_answers(
        bar, "labelling", len(asked), partial(classifier.classify, texts, batch_size=batch_size)
    )
    result = report_labels([one.label for one in found], right, classifier.model.config.labels, seconds)
    cut = sum(one.num_left_out > 0 for one in found)
    if cut:
        result.notes.append(f"Of {cut} of {len(found)} texts only the first {classifier.max_length} tokens are read.")
    return result
