"""Sentence compression: each word is kept or dropped, or a shorter sentence is written anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.core import RegardError
from regard.data.compression import Kept
from regard.data.grammar import split_short
from regard.data.pairs import Pairs
from regard.data.rows import NO_LABEL
from regard.data.split import Split
from regard.extras import install
from regard.tasks.corpus import PHRASEBOOK, Corpus
from regard.tasks.fit import Standing
from regard.tasks.job import MODELS, EncoderJob
from regard.tasks.label import LabelTask, train_labels
from regard.tasks.recipe import Machine
from regard.tasks.tag import TagJob
from regard.tasks.translate import Job, train_translator

TASK = "summarize"


@dataclass(frozen=True)
class ShortCorpus(Corpus):
    """Pairs of a sentence and a shorter one; files are read as `Corpus` reads them.

    >>> ShortCorpus().part().train[1]
    ('please introduce mount tai .', 'mount tai')
    """

    def open(self, paths: tuple[str, ...]) -> Pairs:
        if paths != (PHRASEBOOK,):
            return super().open(paths)
        pairs = self.draw().test
        return Pairs(lambda: iter(pairs), name=PHRASEBOOK)

    def draw(self) -> Split:
        return Split(*([self._turn(pair) for pair in part] for part in split_short()))


@dataclass(frozen=True)
class SummarizeJob(EncoderJob):
    """All that decides what a model learns that keeps or drops each word: see `EncoderJob`.

    Its "f1" is that of the kept words.
    """

    corpus: ShortCorpus = field(default_factory=ShortCorpus)
    lowercase: bool = True
    metric: str = "f1"

    task: ClassVar[str] = TASK
    head: ClassVar[str] = "tags"
    is_worded: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {
        name: {"lr": 1e-3, "warmup": 150, "schedule": "cosine", "average": 0.99} for name in MODELS
    } | {
        "bert": {"lr": 5e-5, "warmup": 100, "schedule": "linear", "epochs": 4},
    }

    styles: ClassVar[Mapping[str, dict[str, Any]]] = TagJob.styles

    def part(self) -> Split:
        # the test is asked as pairs, by those who score
        train, valid, _ = self.corpus.part()
        return Split(list(Kept(train)), list(Kept(valid)), [])

    def choose_kind(self, texts: Sequence[Any]) -> str:
        return "spaces"


@dataclass(frozen=True)
class RewriteJob(Job):
    """All that decides what a model learns that writes the shorter sentence anew: see `translate.Job`.

    >>> RewriteJob.default("transformer").task
    'summarize'

    Both sides have one tokenizer, since they are in one language.
    """

    corpus: Corpus = field(default_factory=ShortCorpus)
    is_shared: bool | None = True

    task: ClassVar[str] = TASK


class KeepTask(LabelTask):
    """Sentences with words to keep and to drop as `fit` wants them."""

    def open_scores(self, device: torch.device) -> dict[str, Any]:
        """Accuracy, F1 of the kept words, and the share of words that the model keeps."""
        try:
            from torchmetrics import MeanMetric
            from torchmetrics.classification import BinaryAccuracy, BinaryF1Score
        except ImportError:
            raise RegardError(f"scores of words need the package torchmetrics: {install('train')}.") from None

        class Share(MeanMetric):
            def update(self, found: Tensor, wanted: Tensor) -> None:  # type: ignore[override]
                super().update(found[wanted != NO_LABEL].float())

        # labels are in the order of the alphabet: keep is 1
        scores = (BinaryAccuracy(ignore_index=NO_LABEL), BinaryF1Score(ignore_index=NO_LABEL), Share())
        return {name: score.to(device) for name, score in zip(("accuracy", "f1", "kept"), scores, strict=True)}


def train_summarizer(
    job: SummarizeJob | RewriteJob, path: str, machine: Machine | None = None, *, is_shown: bool = True,
    logs: bool = False,
) -> Standing:  # fmt: skip
    """Train a summarizer in a folder, or go on with the one that is there."""
    if isinstance(job, RewriteJob):
        return train_translator(job, path, machine, is_shown=is_shown, logs=logs)
    return train_labels(job, path, machine, is_shown=is_shown, logs=logs, kind=KeepTask)
