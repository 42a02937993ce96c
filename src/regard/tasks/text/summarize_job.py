"""Settings of training sentence compression, extractive or abstractive, and its dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.data.compression import Kept
from regard.data.grammar import split_short
from regard.data.pairs import Pairs
from regard.data.split import Split
from regard.tasks.reading.corpus import PHRASEBOOK
from regard.tasks.reading.encoder_job import EncoderJob, make_recipes
from regard.tasks.reading.pairs import PairCorpus
from regard.tasks.text.tag import TagJob
from regard.tasks.text.translate_job import TranslateJob

TASK = "summarize"


@dataclass(frozen=True)
class ShortCorpus(PairCorpus):
    """A dataset of sentences and shorter ones; files are read as `PairCorpus` reads them.

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
    """All settings that decide how a model is trained to keep or drop each word (extractive): see `EncoderJob`.

    Its "f1" is that of the kept words.
    """

    corpus: ShortCorpus = field(default_factory=ShortCorpus)
    lowercase: bool = True
    metric: str = "f1"

    task: ClassVar[str] = TASK
    trainer: ClassVar[str] = "regard.tasks.text.summarize:prepare_summarizer"
    head: ClassVar[str] = "tags"
    is_worded: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = make_recipes(warmup=150, average=0.99)
    styles: ClassVar[Mapping[str, dict[str, Any]]] = TagJob.styles

    def part(self) -> Split:
        return Split(*(list(Kept(part)) for part in self.corpus.part()))

    def choose_kind(self, texts: Sequence[Any]) -> str:
        return "spaces"


@dataclass(frozen=True)
class RewriteJob(TranslateJob):
    """All settings that decide how a model is trained to rewrite a sentence (abstractive): see `TranslateJob`.

    >>> RewriteJob.default("transformer").task
    'summarize'

    Both sides have one tokenizer, since they are in one language.
    """

    corpus: PairCorpus = field(default_factory=ShortCorpus)
    is_shared: bool | None = True

    task: ClassVar[str] = TASK
