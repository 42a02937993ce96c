"""Training an encoder on labels, one per word or per text: what tagging, classification and compression share."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.data.rows import NO_LABEL, Labelled, Rows
from regard.data.split import Split
from regard.models.encoder import Encoder
from regard.tasks.metrics.verdict import JUDGED
from regard.tasks.reading.encoder_job import EncoderJob
from regard.tasks.reading.predict import PLACES, open_rows, part_sentence
from regard.tasks.reading.vocabulary import LETTERS_FILE, TOKENS_FILE, Encoded, Lexicon
from regard.tasks.reading.warm_start import limit_length, prepare_reading
from regard.tasks.training.classification import ClassTask
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.run import describe_parts
from regard.views.labels import show_line

# more labels than this are none: another column was meant
MOST_LABELS = 1000
# and more than this are not named one by one
MOST_NAMED = 8
# a text, or the words of one, and its label, or one for each word
Example = tuple[Any, Any]


class LabelTask(ClassTask):
    """Tagging or classification for the training loop: an encoder and labelled texts."""

    files = (TOKENS_FILE, LETTERS_FILE)

    def __init__(
        self, job: EncoderJob, model: Encoder, lexicon: Lexicon, train: Sequence[Example], valid: Sequence[Example],
        test: Sequence[Example] = (),
    ) -> None:  # fmt: skip
        job = job.fit_batches(len(train))
        self.lexicon, self.label_smoothing = lexicon, job.label_smoothing
        self.unit = "words" if job.is_worded else "texts"
        labels, positions = model.config.labels, limit_length(None, model)
        self.limit = limit_length(job.max_length, model)
        self.train = read_examples(job, lexicon, labels, train, self.limit)
        # of what is validated nothing is left out
        self.valid = read_examples(job, lexicon, labels, valid, self.limit, positions=positions)
        learned, held_out = (_list_numbers(part[1]) for part in (self.train, self.valid))
        super().__init__(model, job, (self.train, self.valid), labels=labels, train=learned, valid=held_out)
        self.test_digest = job.corpus.digest(test)
        # what chose no weights, where there is some
        asked = (test or valid)[:JUDGED]
        self._asked = read_examples(job, lexicon, labels, asked, self.limit, positions=positions)
        # built now, so that what does not fit is said before anything is written
        batches, notes = self.batches(0, 1), [describe_examples(job, train, valid, test)]
        dropped, self.longest = batches.dropped, batches.longest
        if dropped:
            notes.append(f"{dropped} of {len(train)} texts are too long for max_length or max_tokens: left out.")
        if strange := sorted(_gather_labels(job, valid) - _gather_labels(job, train)):
            names = ", ".join(label[:40] for label in strange[:5]) + (", …" if len(strange) > 5 else "")
            notes.append(f"labels of the validation data that no training example has: {names}.")
        self.notes = notes
        self.batches_to_validate(0, 1)

    def write_files(self, folder: RunFolder) -> None:
        self.lexicon.save(folder.path)

    def _batch(self, part: Any, rank: int, world_size: int, **options: Any) -> Rows:
        encoded, labels = part
        return open_rows(encoded, labels, batch_size=self.job.batch_size, rank=rank, world_size=world_size, **options)

    def batches_to_validate(self, rank: int, world_size: int) -> Rows:
        most = self.job.max_tokens
        if most is not None:
            # one that is longer is a batch of its own
            most = max(most, *(len(one.ids) for one in self.valid[0]))
        return self._batch(self.valid, rank, world_size, max_tokens=most, shuffle=False)

    def batches(self, rank: int, world_size: int) -> Rows:
        options: dict[str, Any] = {"max_tokens": self.job.max_tokens, "max_length": self.limit}
        return self._batch(self.train, rank, world_size, seed=self.job.recipe.seed, **options)

    def batches_to_judge(self) -> Rows:
        most = max([PLACES, *(len(one.ids) + 1 for one in self._asked[0])])
        return self._batch(self._asked, 0, 1, max_tokens=most, shuffle=False)

    def predict(self, model: nn.Module, batch: Labelled) -> Tensor:
        logits: Tensor = model(batch.ids, batch.lengths, spelling=batch.spelling)
        return logits


def prepare_labels(job: EncoderJob, parts: Split, folder: RunFolder, kind: type[LabelTask] = LabelTask) -> LabelTask:
    """Build the encoder, tokenizer and data of a labelling job, ready to be trained in a folder."""
    labels = list_labels(job, [*parts.train, *parts.valid])
    start, lexicon = prepare_reading(job, folder, [text for text, _ in parts.train])
    torch.manual_seed(job.recipe.seed)
    return kind(job, job.build(lexicon, labels, start), lexicon, *parts)


def list_labels(job: EncoderJob, examples: Sequence[Example]) -> list[str]:
    """All labels of the examples, sorted."""
    found = sorted(_gather_labels(job, examples))
    if not 2 <= len(found) <= MOST_LABELS:
        names = ", ".join(found[:3])[:40]
        raise RegardError(
            f"labels must be from 2 to {MOST_LABELS} different ones, {' and '.join(job.corpus.data)[:60]} has"
            f" {len(found)} ({names}): name another column."
        )
    return found


def describe_examples(
    job: EncoderJob, train: Sequence[Example], valid: Sequence[Example], test: Sequence[Example] = ()
) -> str:
    """The dataset in a line, with its sizes and label counts: a wrong column shows at once.

    >>> from regard.tasks.text.classify import ClassifyJob
    >>> describe_examples(ClassifyJob(), [("a b", "x"), ("c", "y"), ("d", "x")], [("e", "x")], [("f", "y")])
    '3 texts for training, 1 for validation, 1 for the test; labels: x (2), y (1).'
    """
    counts = Counter(label for _, labels in train for label in (labels if job.is_worded else (labels,)))
    names = ", ".join(f"{show_line(label)[:20]} ({count:,})" for label, count in counts.most_common(MOST_NAMED))
    more = f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else ""
    called = "sentences" if job.is_worded else "texts"
    return f"{describe_parts((train, valid, test), called)}; labels: {names}{more}."


def _list_numbers(labels: Sequence[Any]) -> list[int]:
    """The known labels in one flat list, whether each is of a text or of a word."""
    flat = itertools.chain.from_iterable([x] if isinstance(x, int) else x for x in labels)
    return [x for x in flat if x != NO_LABEL]


def _gather_labels(job: EncoderJob, examples: Sequence[Example]) -> set[str]:
    return {label for _, labels in examples for label in (labels if job.is_worded else (labels,))}


def read_examples(
    job: EncoderJob, lexicon: Lexicon, labels: Sequence[str], examples: Sequence[Example], limit: int | None = None, *,
    positions: int | None = None,
) -> tuple[list[Encoded], list[Any]]:  # fmt: skip
    """Texts as token ids and labels as class indices; a label that the model does not know is -100.

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
