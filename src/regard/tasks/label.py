"""One label a word or one label a text: what tagging, classifying and dropping words have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.data.rows import NO_LABEL, Labelled, Rows
from regard.models.encoder import Encoder
from regard.tasks.fit import Standing
from regard.tasks.folder import RunFolder
from regard.tasks.job import METRICS, EncoderJob
from regard.tasks.lexicon import Encoded, Lexicon
from regard.tasks.recipe import Machine
from regard.tasks.run import Learning, train_run
from regard.tasks.start import prepare_reading

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# more labels than this are none: another column was meant
MOST_LABELS = 1000
# places for tokens in a batch, when a trained model is asked
PLACES = 2**13

# a text, or the words of one, and its label, or one for each word
Example = tuple[Any, Any]


class LabelTask(Learning):
    """Labelled texts and an encoder as `fit` wants them."""

    def __init__(
        self, job: EncoderJob, model: Encoder, lexicon: Lexicon, train: Sequence[Example], valid: Sequence[Example]
    ) -> None:
        super().__init__(model)
        self.job, self.lexicon = job, lexicon
        self.metric, self.more_is_better = job.metric, METRICS[job.metric]
        self.train, self.valid = (read_examples(job, lexicon, model.config.labels, part) for part in (train, valid))
        # built now, so that what does not fit is said before anything is written
        dropped = self.batches(0, 1).dropped
        if dropped:
            self.notes = [f"{dropped} of {len(train)} texts are too long for max_length or max_tokens: left out."]
        self._batch(self.valid, 0, 1)

    @property
    def settings(self) -> dict[str, Any]:
        digest = hashlib.sha256(repr((self.train, self.valid)).encode()).hexdigest()[:16]
        return {"task": self.job.task, **asdict(self.job), "data_digest": digest}

    def write_files(self, folder: RunFolder) -> None:
        self.lexicon.save(folder.path)

    def _batch(self, part: Any, rank: int, world_size: int, **options: Any) -> Rows:
        encoded, labels = part
        return open_rows(
            encoded, labels, batch_size=self.job.batch_size, max_tokens=self.job.max_tokens, rank=rank,
            world_size=world_size, **options,
        )  # fmt: skip

    def batches(self, rank: int, world_size: int) -> Rows:
        return self._batch(self.train, rank, world_size, max_length=self.job.max_length, seed=self.job.recipe.seed)

    def count(self, batch: Labelled) -> int:
        assert batch.labels is not None
        return int((batch.labels != NO_LABEL).sum())

    def measure(self, model: nn.Module, batch: Labelled) -> Tensor:
        return _compare(_ask(model, batch), batch.labels, self.job.label_smoothing)

    def open_scores(self, device: torch.device) -> dict[str, Any]:
        """What a validation measures besides the loss, each from 0 to 1."""
        return open_scores(len(self.model.config.labels), device)

    def validate(self, model: nn.Module, fabric: Fabric) -> dict[str, float]:
        rows = self._batch(self.valid, fabric.global_rank, fabric.world_size, shuffle=False)
        scores = self.open_scores(fabric.device)
        sums = torch.zeros(2, dtype=torch.float64)
        for batch in rows.walk():
            here = batch.to(fabric.device)
            logits, labels = _ask(model, here), here.labels
            sums += torch.tensor([float(_compare(logits, labels)), self.count(batch)], dtype=torch.float64)
            for score in scores.values():
                score.update(logits.argmax(-1), labels)
        total, count = fabric.all_reduce(sums.to(fabric.device), reduce_op="sum").tolist()
        return {"loss": total / count, **{name: 100 * float(score.compute()) for name, score in scores.items()}}


def train_labels(
    job: EncoderJob, path: str, machine: Machine | None = None, *, is_shown: bool = True, logs: bool = False,
    kind: type[LabelTask] = LabelTask,
) -> Standing:  # fmt: skip
    """Train an encoder on labelled texts in a folder, or go on with the one that is there."""

    def prepare(folder: RunFolder) -> LabelTask:
        parts = job.part()
        labels = list_labels(job, [*parts.train, *parts.valid])
        trunk, lexicon = prepare_reading(job, folder, [text for text, _ in parts.train])
        torch.manual_seed(job.recipe.seed)
        model = job.build(lexicon, labels, trunk)
        return kind(job, model, lexicon, parts.train, parts.valid)

    return train_run(path, prepare, job.recipe, machine, is_shown=is_shown, logs=logs)


def list_labels(job: EncoderJob, examples: Sequence[Example]) -> list[str]:
    """All labels there are, in order."""
    found = sorted({label for _, labels in examples for label in (labels if job.is_worded else (labels,))})
    if not 2 <= len(found) <= MOST_LABELS:
        names = ", ".join(found[:3])[:40]
        raise RegardError(
            f"labels must be from 2 to {MOST_LABELS} different ones, {' and '.join(job.corpus.data)[:60]} has"
            f" {len(found)} ({names}): name another column."
        )
    return found


def read_examples(
    job: EncoderJob, lexicon: Lexicon, labels: Sequence[str], examples: Sequence[Example]
) -> tuple[list[Encoded], list[Any]]:
    """Texts as the model reads them, and their labels by number; a label that the model does not know is -100."""
    numbers = {label: number for number, label in enumerate(labels)}
    texts = [text for text, _ in examples]
    if not job.is_worded:
        encoded = lexicon.encode_texts(texts, job.max_length)
        return encoded, [numbers.get(label, NO_LABEL) for _, label in examples]
    encoded = lexicon.encode_words(texts)
    places = []
    for one, (_, tags) in zip(encoded, examples, strict=True):
        row = [NO_LABEL] * len(one.ids)
        for place, tag in zip(one.starts or [], tags, strict=True):
            row[place] = numbers.get(tag, NO_LABEL)
        places.append(row)
    return encoded, places


def open_rows(encoded: Sequence[Encoded], labels: Any = None, **options: Any) -> Rows:
    """Batches of what was read."""
    letters = [one.letters for one in encoded if one.letters is not None]
    return Rows([one.ids for one in encoded], labels, letters=letters or None, **options)


def open_scores(num_labels: int, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The measures of labels, by torchmetrics: accuracy, and the mean over labels of F1."""
    try:
        from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
    except ImportError:
        raise RegardError("scores of labels need the package torchmetrics: pip install 'regard[train]'.") from None
    options: dict[str, Any] = {"num_classes": num_labels, "ignore_index": NO_LABEL}
    accuracy = MulticlassAccuracy(average="micro", **options)
    return {"accuracy": accuracy.to(device), "f1": MulticlassF1Score(average="macro", **options).to(device)}


@torch.no_grad()
def find_logits(
    model: Encoder, encoded: Sequence[Encoded], *, batch_size: int = 64,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:  # fmt: skip
    """What a trained model answers to each text, (labels) or (tokens, labels), in their order."""
    if not encoded:
        return []
    found: list[Tensor] = [torch.empty(0)] * len(encoded)
    place, done = next(model.parameters()).device, 0
    longest = max(len(one.ids) for one in encoded)
    for batch in open_rows(encoded, batch_size=batch_size, max_tokens=max(PLACES, longest + 1), shuffle=False).walk():
        logits = _ask(model, batch.to(place)).float().cpu()
        for number, length, row in zip(batch.numbers.tolist(), batch.lengths.tolist(), logits, strict=True):
            found[number] = row[:length] if row.ndim == 2 else row
        done += len(batch.numbers)
        if on_progress is not None:
            on_progress(done, len(encoded))
    return found


def _ask(model: nn.Module, batch: Labelled) -> Tensor:
    logits: Tensor = model(batch.ids, batch.lengths, spelling=batch.spelling)
    return logits


def _compare(logits: Tensor, labels: Tensor | None, label_smoothing: float = 0.0) -> Tensor:
    assert labels is not None
    return functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), ignore_index=NO_LABEL, reduction="sum",
        label_smoothing=label_smoothing,
    )  # fmt: skip
