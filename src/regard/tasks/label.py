"""One label a word or one label a text: what tagging, classifying and dropping words have in common."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.data.rows import NO_LABEL, Labelled, Rows
from regard.extras import install
from regard.models.encoder import Encoder
from regard.tasks.fit import Standing
from regard.tasks.folder import RunFolder
from regard.tasks.job import METRICS, EncoderJob
from regard.tasks.lexicon import Encoded, Lexicon
from regard.tasks.recipe import Machine
from regard.tasks.run import Learning, digest_data, train_run
from regard.tasks.start import limit_length, pause_training, prepare_reading
from regard.views.labels import show_line

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# more labels than this are none: another column was meant
MOST_LABELS = 1000
# and more than this are not named one by one
MOST_NAMED = 8
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
        self.unit = "words" if job.is_worded else "texts"
        labels, positions = model.config.labels, limit_length(None, model)
        self.limit = limit_length(job.max_length, model)
        self.train = read_examples(job, lexicon, labels, train, self.limit)
        # of what is validated nothing is left out
        self.valid = read_examples(job, lexicon, labels, valid, self.limit, positions=positions)
        self._digest = digest_data(self.train, self.valid)
        # built now, so that what does not fit is said before anything is written
        batches, notes = self.batches(0, 1), [describe_examples(job, train, valid)]
        dropped, self.longest = batches.dropped, batches.longest
        if dropped:
            notes.append(f"{dropped} of {len(train)} texts are too long for max_length or max_tokens: left out.")
        if strange := sorted(_gather_labels(job, valid) - _gather_labels(job, train)):
            names = ", ".join(label[:40] for label in strange[:5]) + (", …" if len(strange) > 5 else "")
            notes.append(f"labels that only the validation has, and nothing teaches: {names}.")
        self.notes = notes
        self._batch_valid(0, 1)

    @property
    def settings(self) -> dict[str, Any]:
        return {"task": self.job.task, **asdict(self.job), "data_digest": self._digest}

    def write_files(self, folder: RunFolder) -> None:
        self.lexicon.save(folder.path)

    def _batch(self, part: Any, rank: int, world_size: int, **options: Any) -> Rows:
        encoded, labels = part
        return open_rows(encoded, labels, batch_size=self.job.batch_size, rank=rank, world_size=world_size, **options)

    def _batch_valid(self, rank: int, world_size: int) -> Rows:
        most = self.job.max_tokens
        if most is not None:
            # one that is longer is a batch of its own
            most = max(most, *(len(one.ids) for one in self.valid[0]))
        return self._batch(self.valid, rank, world_size, max_tokens=most, shuffle=False)

    def batches(self, rank: int, world_size: int) -> Rows:
        options: dict[str, Any] = {"max_tokens": self.job.max_tokens, "max_length": self.limit}
        return self._batch(self.train, rank, world_size, seed=self.job.recipe.seed, **options)

    def count(self, batch: Labelled) -> int:
        assert batch.labels is not None
        return int((batch.labels != NO_LABEL).sum())

    def measure(self, model: nn.Module, batch: Labelled) -> Tensor:
        return _compare(_ask(model, batch), batch.labels, self.job.label_smoothing)

    def open_scores(self, device: torch.device) -> dict[str, Any]:
        """What a validation measures besides the loss, each from 0 to 1."""
        return open_scores(len(self.model.config.labels), device)

    def validate(self, model: nn.Module, fabric: Fabric) -> dict[str, float]:
        rows = self._batch_valid(fabric.global_rank, fabric.world_size)
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
    found = sorted(_gather_labels(job, examples))
    if not 2 <= len(found) <= MOST_LABELS:
        names = ", ".join(found[:3])[:40]
        raise RegardError(
            f"labels must be from 2 to {MOST_LABELS} different ones, {' and '.join(job.corpus.data)[:60]} has"
            f" {len(found)} ({names}): name another column."
        )
    return found


def describe_examples(job: EncoderJob, train: Sequence[Example], valid: Sequence[Example]) -> str:
    """What there is to learn from, in a line: a column that was taken for another shows at once.

    >>> from regard.tasks.classify import ClassifyJob
    >>> describe_examples(ClassifyJob(), [("a b", "x"), ("c", "y"), ("d", "x")], [("e", "x")])
    '3 texts to learn from, 1 to validate by; labels: x (2), y (1).'
    """
    counts = Counter(label for _, labels in train for label in (labels if job.is_worded else (labels,)))
    names = ", ".join(f"{show_line(label)[:20]} ({count:,})" for label, count in counts.most_common(MOST_NAMED))
    more = f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else ""
    return f"{len(train):,} texts to learn from, {len(valid):,} to validate by; labels: {names}{more}."


def _gather_labels(job: EncoderJob, examples: Sequence[Example]) -> set[str]:
    return {label for _, labels in examples for label in (labels if job.is_worded else (labels,))}


def read_examples(
    job: EncoderJob, lexicon: Lexicon, labels: Sequence[str], examples: Sequence[Example], limit: int | None = None, *,
    positions: int | None = None,
) -> tuple[list[Encoded], list[Any]]:  # fmt: skip
    """Texts as the model reads them, and their labels by number; a label that the model does not know is -100.

    Of a text that has one label the first `limit` tokens are read. A sentence of words that has more than `positions`
    becomes several.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    texts = [text for text, _ in examples]
    if not job.is_worded:
        encoded = lexicon.encode_texts(texts, limit)
        return encoded, [numbers.get(label, NO_LABEL) for _, label in examples]
    parts = [part_sentence(lexicon, one, positions) for one in lexicon.encode_words(texts)]
    places = []
    for windows, (_, tags) in zip(parts, examples, strict=True):
        rows = [[NO_LABEL] * len(one.ids) for one in windows]
        starts = [(row, place) for row, one in zip(rows, windows, strict=True) for place in one.starts or []]
        for (row, place), tag in zip(starts, tags, strict=True):
            row[place] = numbers.get(tag, NO_LABEL)
        places += rows
    return [*itertools.chain.from_iterable(parts)], places


def part_sentence(lexicon: Lexicon, one: Encoded, limit: int | None) -> list[Encoded]:
    """A sentence of words as several of at most `limit` tokens, each in its frame; no word is parted.

    >>> lexicon = Lexicon.train([["the", "cat", "sat"]], "spaces")
    >>> (one,) = lexicon.encode_words([["the", "cat", "sat"]])
    >>> [part.ids for part in part_sentence(lexicon, one, 2)] == [one.ids[:2], one.ids[2:]]
    True

    Of a word that has more pieces than all of the limit the first are read.
    """
    if limit is None or len(one.ids) <= limit or not one.starts:
        return [one]
    before = one.starts[0]
    behind = len(lexicon.frame([-1])) - before - 1
    last, most = len(one.ids) - behind, max(1, limit - before - behind)
    groups: list[list[tuple[int, int]]] = []
    for start, stop in itertools.pairwise([*one.starts, last]):
        if not groups or stop - groups[-1][0][0] > most:
            groups.append([])
        groups[-1].append((start, stop))
    found = []
    for group in groups:
        first, stop = group[0][0], min(group[-1][1], group[0][0] + most)
        chosen = [*range(before), *range(first, stop), *range(last, len(one.ids))]
        letters = None if one.letters is None else [one.letters[place] for place in chosen]
        starts = [start - first + before for start, _ in group]
        found.append(Encoded([one.ids[place] for place in chosen], letters, starts))
    return found


def open_rows(encoded: Sequence[Encoded], labels: Any = None, **options: Any) -> Rows:
    """Batches of what was read."""
    letters = [one.letters for one in encoded if one.letters is not None]
    return Rows([one.ids for one in encoded], labels, letters=letters or None, **options)


def open_scores(num_labels: int, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The measures of labels, by torchmetrics: accuracy, and the mean over labels of F1."""
    try:
        from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
    except ImportError:
        raise RegardError(f"scores of labels need the package torchmetrics: {install('train')}.") from None
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
    rows = open_rows(encoded, batch_size=batch_size, max_tokens=max(PLACES, longest + 1), shuffle=False)
    with pause_training(model):
        for batch in rows.walk():
            logits = _ask(model, batch.to(place)).float().cpu()
            for number, length, row in zip(batch.numbers.tolist(), batch.lengths.tolist(), logits, strict=True):
                found[number] = row[:length] if row.ndim == 2 else row
            done += len(batch.numbers)
            if on_progress is not None:
                on_progress(done, len(encoded))
    return found


def find_word_logits(
    model: Encoder, lexicon: Lexicon, encoded: Sequence[Encoded], *, batch_size: int = 64,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:  # fmt: skip
    """What a trained model answers to each word of sentences, (words, labels), in their order.

    A sentence for which the model has no positions is read in parts.
    """
    positions = limit_length(None, model)
    parts = [part_sentence(lexicon, one, positions) for one in encoded]
    whole = [*itertools.chain.from_iterable(parts)]
    answers = iter(find_logits(model, whole, batch_size=batch_size, on_progress=on_progress))
    return [torch.cat([next(answers)[one.starts or []] for one in windows]) for windows in parts]


def _ask(model: nn.Module, batch: Labelled) -> Tensor:
    logits: Tensor = model(batch.ids, batch.lengths, spelling=batch.spelling)
    return logits


def _compare(logits: Tensor, labels: Tensor | None, label_smoothing: float = 0.0) -> Tensor:
    assert labels is not None
    return functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), ignore_index=NO_LABEL, reduction="sum",
        label_smoothing=label_smoothing,
    )  # fmt: skip
