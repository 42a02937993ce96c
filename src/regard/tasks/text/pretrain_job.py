"""Settings of pre-training an encoder on plain text, and its dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from regard.core import RegardError
from regard.data.grammar import split_tagged
from regard.data.scripts import is_unspaced
from regard.data.split import Split
from regard.data.texts import read_texts
from regard.tasks.reading.corpus import PHRASEBOOK, TextExamples
from regard.tasks.reading.encoder_job import EncoderJob
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.training.examples import SHARED, Fits

if TYPE_CHECKING:
    from regard.models.encoder import Encoder
    from regard.tasks.text.pretrain import PretrainEncoder

# what a model needs to tell a next text from another
NEXT = {"has_next": True, "num_types": 2, "pooling": "first"}


@dataclass(frozen=True)
class TextCorpus(TextExamples):
    """A dataset of texts that `read_texts` reads, each as (text,); with `is_whole` all texts of a document together.

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
    """All settings that decide how an encoder is pre-trained on plain text: see `EncoderJob`.

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
    trainer: ClassVar[str] = "regard.tasks.text.pretrain:prepare_encoder"
    metrics: ClassVar[Mapping[str, bool]] = {"loss": False, "accuracy": True}
    head: ClassVar[str] = "words"
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {
        "attention": {"lr": 1e-3, "warmup": 500, "schedule": "cosine", "beta2": 0.98, "average": 0.998},
        "gru": {"lr": 1e-3, "warmup": 200, "schedule": "cosine", "average": 0.998},
        "cnn": {"lr": 1e-3, "warmup": 200, "schedule": "cosine", "average": 0.998},
        "bert": {"lr": 1e-4, "warmup": 200, "schedule": "linear"},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rate < 1:
            raise RegardError(f"rate, the fraction of the tokens to mask, must lie in (0, 1), got {self.rate}.")
        for name, value in NEXT.items() if self.has_next else [("has_next", False)]:
            if self.changes.get(name, value) != value:
                given = self.changes[name]
                raise RegardError(f"{name}={given!r:.20} cannot be where has_next is {self.has_next}: leave it out.")
        if self.has_next:
            object.__setattr__(self, "changes", {**self.changes, **NEXT})
            object.__setattr__(self, "corpus", replace(self.corpus, is_whole=True))

    def configure(self) -> tuple[Any, set[str]]:
        config, fixed = super().configure()
        return config, {*fixed, *(NEXT if self.has_next else ())}

    def choose_kind(self, texts: Sequence[Any]) -> str:
        return "characters" if is_unspaced(texts) else "words"

    def build(self, lexicon: Lexicon, labels: Sequence[str] = (), trunk: Encoder | None = None) -> PretrainEncoder:
        """A new model for this vocabulary, or one that continues from a pretrained encoder, its heads included."""
        from regard.tasks.text.pretrain import PretrainEncoder

        made = super().build(lexicon, labels, trunk)
        model, state = PretrainEncoder(made.config), made.state_dict()
        heads = {} if trunk is None else trunk.state_dict()
        state |= {name: x for name, x in heads.items() if name in state and name.startswith(("words.", "next_"))}
        model.load_state_dict(state)
        return model
