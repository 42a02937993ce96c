"""Pre-training: an encoder learns from plain text, by guessing hidden words and whether one text follows another."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.data.grammar import split_tagged
from regard.data.rows import NO_LABEL, Labelled, Masked, Rows
from regard.data.split import Split
from regard.data.texts import read_texts
from regard.models.encoder import Encoder
from regard.tasks.corpus import PHRASEBOOK, SHARED, Examples, Fits
from regard.tasks.documents import Read, read_documents
from regard.tasks.evaluate import is_unspaced
from regard.tasks.fit import Standing
from regard.tasks.folder import RunFolder
from regard.tasks.job import METRICS, EncoderJob
from regard.tasks.lexicon import Lexicon
from regard.tasks.recipe import Machine
from regard.tasks.run import Learning, train_run
from regard.tasks.start import prepare_reading

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# what a model needs to tell a next text from another
NEXT = {"has_next": True, "num_types": 2, "pooling": "first"}


@dataclass(frozen=True)
class TextCorpus(Examples):
    """Texts of files that `read_texts` reads, each as (text,); with `is_whole` all texts of a document together.

    >>> TextCorpus().part().train[0]
    ('introduce dalian .',)

    `column` is that of TSV and CSV, by number from 0 or by a header's name; None finds it. `key` is that of JSONL.
    """

    column: int | str | None = None
    key: str = "text"
    is_whole: bool = False

    fits: ClassVar[Fits] = {
        **SHARED,
        "column": lambda x: x is None or type(x) in (int, str),
        "key": lambda x: type(x) is str,
        "is_whole": lambda x: type(x) is bool,
    }
    called: ClassVar[str] = "texts"

    def open(self, paths: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for path in paths:
            texts: Iterable[str] = read_texts(path, column=self.column, key=self.key)
            if self.is_whole:
                yield from (tuple(lines) for has_text, lines in itertools.groupby(texts, bool) if has_text)
            else:
                yield from ((text,) for text in texts if text)

    def draw(self) -> Split:
        if self.is_whole:
            raise RegardError(f"the {PHRASEBOOK} has no documents, and has_next needs some: name a file of texts.")
        return Split(*([(" ".join(words),) for words, _ in part] for part in split_tagged()))


@dataclass(frozen=True)
class PretrainJob(EncoderJob):
    """All that decides what an encoder learns from plain text: see `EncoderJob`.

    `rate` is the part of the tokens that are hidden. With `has_next` the model reads two texts at once, and learns
    whether the second is the next one of a document or, as often, one of another; blank lines part documents. A text of
    more than `max_length` tokens is cut into several.
    """

    corpus: TextCorpus = field(default_factory=TextCorpus)
    # slower, and what words are made of is learned from so much text anyway
    has_letters: bool | None = False
    metric: str = "loss"
    rate: float = 0.15
    has_next: bool = False

    task: ClassVar[str] = "pretrain"
    head: ClassVar[str] = "words"
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {
        "attention": {"lr": 1e-3, "warmup": 500, "schedule": "cosine", "beta2": 0.98, "average": 0.998},
        "gru": {"lr": 1e-3, "warmup": 200, "schedule": "cosine", "average": 0.998},
        "cnn": {"lr": 1e-3, "warmup": 200, "schedule": "cosine", "average": 0.998},
        "bert": {"lr": 1e-4, "warmup": 200, "schedule": "linear"},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric == "f1":
            raise RegardError("metric must be loss or accuracy where words are guessed, got 'f1'.")
        if not 0 < self.rate < 1:
            raise RegardError(f"rate, the part of the tokens to hide, must lie in (0, 1), got {self.rate}.")
        for name, value in NEXT.items() if self.has_next else [("has_next", False)]:
            if self.changes.get(name, value) != value:
                given = self.changes[name]
                raise RegardError(f"{name}={given!r:.20} cannot be where has_next is {self.has_next}: leave it out.")
        if self.has_next:
            object.__setattr__(self, "changes", {**self.changes, **NEXT})
            object.__setattr__(self, "corpus", replace(self.corpus, is_whole=True))

    def choose_kind(self, texts: Sequence[Any]) -> str:
        return "characters" if is_unspaced(texts) else "words"

    def build(self, lexicon: Lexicon, labels: Sequence[str] = (), trunk: Encoder | None = None) -> Guesser:
        """A new model for this vocabulary, or one that goes on from another, whose guesses it keeps."""
        made = super().build(lexicon, labels, trunk)
        model, state = Guesser(made.config), made.state_dict()
        heads = {} if trunk is None else trunk.state_dict()
        state |= {name: x for name, x in heads.items() if name in state and name.startswith(("words.", "next_"))}
        model.load_state_dict(state)
        return model


class Guesser(Encoder):
    """An `Encoder` that, when called, guesses words at chosen places alone, and whether the second text is the next."""

    def forward(  # type: ignore[override]
        self, ids: Tensor, valid_lens: Tensor, *, chosen: Tensor, spelling: Tensor | None, types: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """(places, vocab) and, with has_next, (batch, 2)."""
        hidden = self.encode(ids, valid_lens, spelling=spelling, types=types)
        follows = self.predict_next(hidden, valid_lens) if self.config.has_next else None
        return self.predict_words(hidden[chosen]), follows


class PretrainTask(Learning):
    """Plain texts and an encoder as `fit` wants them."""

    def __init__(
        self, job: PretrainJob, model: Guesser, lexicon: Lexicon, train: Sequence[Sequence[str]],
        valid: Sequence[Sequence[str]],
    ) -> None:  # fmt: skip
        super().__init__(model)
        self.job, self.lexicon = job, lexicon
        self.metric, self.more_is_better = job.metric, METRICS[job.metric]
        positions = model.config.max_len if model.config.position == "learned" else None
        limit = min((x for x in (job.max_length, job.max_tokens, positions) if x is not None), default=None)
        # what a validation asks is the same for all seeds: runs compare
        self.train, self.valid = (
            read_documents(lexicon, part, limit, job.recipe.seed if part is train else 0, has_next=job.has_next)
            for part in (train, valid)
        )
        self._digest = hashlib.sha256(repr((self.train, self.valid)).encode()).hexdigest()[:16]
        # built now, so that what does not fit is said before anything is written
        self.longest = self.batches(0, 1).longest
        self._ask_batches(0, 1)

    @property
    def settings(self) -> dict[str, Any]:
        return {"task": self.job.task, **asdict(self.job), "data_digest": self._digest}

    def write_files(self, folder: RunFolder) -> None:
        self.lexicon.save(folder.path)

    def _batch(self, part: Read, rank: int, world_size: int, **options: Any) -> Masked:
        rows = Rows(
            part.ids, letters=part.letters, types=part.types, batch_size=self.job.batch_size,
            max_tokens=self.job.max_tokens, rank=rank, world_size=world_size, **options,
        )  # fmt: skip
        lexicon = self.lexicon
        return Masked(
            rows, mask_id=lexicon.mask_id, vocab_size=lexicon.vocab_size, special=lexicon.special, rate=self.job.rate
        )

    def _ask_batches(self, rank: int, world_size: int) -> Masked:
        return self._batch(self.valid, rank, world_size, shuffle=False, what="validation text")

    def batches(self, rank: int, world_size: int) -> Masked:
        return self._batch(self.train, rank, world_size, seed=self.job.recipe.seed)

    def count(self, batch: Labelled) -> int:
        assert batch.labels is not None
        # a step is a mean, and of a few short texts chance may hide nothing
        return max(1, int((batch.labels != NO_LABEL).sum()))

    def measure(self, model: nn.Module, batch: Labelled) -> Tensor:
        words, wanted, follows, others = self._ask(model, batch, self.train)
        loss = functional.cross_entropy(words, wanted, reduction="sum", label_smoothing=self.job.label_smoothing)
        if follows is not None:
            # a step is the mean over all words that are hidden: both losses count as one each
            loss = loss + functional.cross_entropy(follows, others) * len(wanted)
        return loss

    def _ask(self, model: nn.Module, batch: Labelled, part: Read) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Guesses at words and what these are, guesses at the second text and what it is."""
        assert batch.labels is not None
        chosen = batch.labels != NO_LABEL
        words, follows = model(batch.ids, batch.lengths, chosen=chosen, spelling=batch.spelling, types=batch.types)
        others = torch.tensor([] if part.others is None else [part.others[n] for n in batch.numbers.tolist()])
        return words, batch.labels[chosen], follows, others.to(batch.ids.device)

    def validate(self, model: nn.Module, fabric: Fabric) -> dict[str, float]:
        sums = torch.zeros(6, dtype=torch.float64)
        for batch in self._ask_batches(fabric.global_rank, fabric.world_size).walk():
            words, wanted, follows, others = self._ask(model, batch.to(fabric.device), self.valid)
            sums[:3] += _count_right(words, wanted)
            if follows is not None:
                sums[3:] += _count_right(follows, others)
        loss, right, count, next_loss, next_right, pairs = fabric.all_reduce(
            sums.to(fabric.device), reduce_op="sum"
        ).tolist()
        found = {"loss": loss / count, "perplexity": math.exp(min(loss / count, 700)), "accuracy": 100 * right / count}
        if pairs:
            found["loss"] += next_loss / pairs
            found["next"] = 100 * next_right / pairs
        return found


def train_pretrained(
    job: PretrainJob, path: str, machine: Machine | None = None, *, is_shown: bool = True, logs: bool = False
) -> Standing:
    """Pre-train an encoder in a folder, or go on with the one that is there; `tag` and `classify` can start from it."""

    def prepare(folder: RunFolder) -> PretrainTask:
        parts = job.part()
        trunk, lexicon = prepare_reading(job, folder, [text for texts in parts.train for text in texts])
        torch.manual_seed(job.recipe.seed)
        return PretrainTask(job, job.build(lexicon, trunk=trunk), lexicon, parts.train, parts.valid)

    return train_run(path, prepare, job.recipe, machine, is_shown=is_shown, logs=logs)


def _count_right(logits: Tensor, wanted: Tensor) -> Tensor:
    """The sum of the losses, how many guesses are right, and of how many."""
    loss, right = functional.cross_entropy(logits, wanted, reduction="sum"), (logits.argmax(-1) == wanted).sum()
    return torch.tensor([float(loss), int(right), len(wanted)], dtype=torch.float64)
