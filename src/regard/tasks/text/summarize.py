"""Sentence compression: each word is kept or dropped, or a shorter sentence is written anew."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.data.rows import NO_LABEL
from regard.data.split import Split
from regard.extras import install
from regard.tasks.reading.labelling import LabelTask, train_labels
from regard.tasks.text.summarize_job import RewriteJob, SummarizeJob
from regard.tasks.text.translate import train_translator
from regard.tasks.training.fit import Standing
from regard.tasks.training.machine import Machine


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
    job: SummarizeJob | RewriteJob, path: str, machine: Machine | None = None, *, parts: Split | None = None,
    is_shown: bool = True, logs: bool = False,
) -> Standing:  # fmt: skip
    """Train a summarizer in a folder, or go on with the one that is there."""
    if isinstance(job, RewriteJob):
        return train_translator(job, path, machine, parts=parts, is_shown=is_shown, logs=logs)
    return train_labels(job, path, machine, parts=parts, is_shown=is_shown, logs=logs, kind=KeepTask)
