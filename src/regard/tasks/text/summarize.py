"""Sentence compression (extractive summarization): an encoder that keeps or drops each word."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.data.rows import NO_LABEL
from regard.data.split import Split
from regard.extras import install
from regard.tasks.reading.labelling import LabelTask, prepare_labels
from regard.tasks.text.summarize_job import SummarizeJob
from regard.tasks.training.folder import RunFolder


class KeepTask(LabelTask):
    """Sentence compression for the training loop: an encoder and sentences with words to keep and to drop."""

    def open_scores(self, device: torch.device) -> dict[str, Any]:
        """Validation metrics: accuracy, F1 of the kept words, and the share of words that the model keeps."""
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


def prepare_summarizer(job: SummarizeJob, parts: Split, folder: RunFolder) -> LabelTask:
    """Build the encoder, tokenizer and data of sentence compression, ready to be trained in a folder."""
    return prepare_labels(job, parts, folder, KeepTask)
