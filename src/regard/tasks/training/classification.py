"""Classification of any data: cross-entropy loss, validated by accuracy and macro F1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.data.rows import NO_LABEL
from regard.extras import install
from regard.models.pretrained import Pretrained, load_pretrained
from regard.tasks.metrics.verdict import judge_labels
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.run import Learning
from regard.tasks.training.task import Walk
from regard.views.labels import show_line

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class ClassTask(Learning):
    """Classification for the training loop: a model of logits, (…, labels), and batches with class indices `labels`.

    A subclass has `batches`, `batches_to_validate`, `batches_to_judge` for the report at the end of a run, and
    `predict` where the model is asked for logits by more than the batch. `train` and `valid` are the numbers of the
    labels that are there, from which the baseline of saying always the most frequent one follows.
    """

    label_smoothing: float = 0.0

    def __init__(
        self, model: Pretrained, job: Any, data: Sequence[Any], *, labels: Sequence[str], train: Sequence[int],
        valid: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__(model, job, data)
        self.labels = labels
        self.usual = Counter(train).most_common(1)[0][0]
        self.baselines = {"accuracy": 100 * valid.count(self.usual) / max(len(valid), 1)}

    def batches_to_validate(self, rank: int, world_size: int) -> Walk:
        """The validation batches of this process."""
        raise NotImplementedError

    def batches_to_judge(self) -> Walk:
        """Batches of held-out examples, of the test where there is one, for the report at the end."""
        raise NotImplementedError

    def predict(self, model: nn.Module, batch: Any) -> Tensor:
        """The logits of a batch."""
        logits: Tensor = model(batch)
        return logits

    def count(self, batch: Any) -> int:
        return int((batch.labels != NO_LABEL).sum())

    def measure(self, model: nn.Module, batch: Any) -> Tensor:
        return find_cross_entropy(self.predict(model, batch), batch.labels, self.label_smoothing)

    def open_scores(self, device: torch.device) -> dict[str, Any]:
        """The validation metrics besides the loss, each from 0 to 1."""
        return open_scores(len(self.labels), device)

    def validate(self, model: nn.Module, fabric: Fabric) -> dict[str, float]:
        scores = self.open_scores(fabric.device)
        sums = torch.zeros(2, dtype=torch.float64, device=fabric.device)
        for batch in self.batches_to_validate(fabric.global_rank, fabric.world_size).walk():
            here = fabric.to_device(batch)
            logits, labels = self.predict(model, here), here.labels
            # read at the end: a look at each would make a GPU wait
            sums[0] += find_cross_entropy(logits, labels)
            sums[1] += self.count(batch)
            for score in scores.values():
                score.update(logits.argmax(-1), labels)
        total, count = fabric.all_reduce(sums, reduce_op="sum").tolist()
        return {"loss": total / count, **{name: 100 * float(score.compute()) for name, score in scores.items()}}

    def judge(self, folder: RunFolder, device: torch.device, best: Mapping[str, float]) -> list[str]:
        model: Any = load_pretrained(folder.path, device, kinds=(type(self.model),))
        pairs: list[tuple[int, int]] = []
        with torch.no_grad():
            for batch in self.batches_to_judge().walk():
                here = batch.to(device)
                said, right = self.predict(model, here).argmax(-1), here.labels
                pairs += zip(said[right != NO_LABEL].tolist(), right[right != NO_LABEL].tolist(), strict=True)
        if not pairs:
            return []
        hits, usual = (sum(a == b for a, b in x) for x in (pairs, [(self.usual, b) for _, b in pairs]))
        return judge_labels(
            hits, len(pairs), usual, show_line(self.labels[self.usual]), self.unit, len(self.labels)
        )  # fmt: skip


def open_scores(num_labels: int, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Metrics of labels, by torchmetrics: accuracy, and macro F1, the mean over labels."""
    try:
        from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
    except ImportError:
        raise RegardError(f"scores of labels need the package torchmetrics: {install('train')}.") from None
    options: dict[str, Any] = {"num_classes": num_labels, "ignore_index": NO_LABEL}
    accuracy = MulticlassAccuracy(average="micro", **options)
    return {"accuracy": accuracy.to(device), "f1": MulticlassF1Score(average="macro", **options).to(device)}


def find_cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The sum of the cross-entropies of labels; NO_LABEL is ignored."""
    return functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), ignore_index=NO_LABEL, reduction="sum",
        label_smoothing=label_smoothing,
    )  # fmt: skip
