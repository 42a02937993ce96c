"""Tagging, one label per word: the dataset, and the settings of training."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.core import RegardError
from regard.data.grammar import split_tagged
from regard.data.split import Split
from regard.data.tagged import read_tagged
from regard.tasks.reading.corpus import TextExamples
from regard.tasks.reading.encoder_job import EncoderJob, make_recipes, make_styles
from regard.tasks.training.examples import SHARED, Examples, Fits

# most words of a treebank are rare: few are learned by heart, and how they are written tells the rest
DROPS = {"dropout": 0.3, "embed_dropout": 0.3, "word_dropout": 0.1}


@dataclass(frozen=True)
class TaggedCorpus(TextExamples):
    """A dataset of (words, tags); `column` is one of CoNLL-U's, by its name.

    >>> words, tags = TaggedCorpus().part().train[0]
    >>> len(words) == len(tags)
    True
    """

    column: str = "upos"

    fits: ClassVar[Fits] = {**SHARED, "column": lambda x: type(x) is str}
    called: ClassVar[str] = "sentences"

    def open(self, paths: tuple[str, ...]) -> Iterable[Any]:
        return itertools.chain.from_iterable(read_tagged(path, column=self.column) for path in paths)

    def draw(self) -> Split:
        return split_tagged()

    def refuse(self, parts: Split, name: str) -> RegardError:
        if sum(map(len, parts)) == 1:
            return RegardError(f"{' and '.join(self.data)} is one sentence: put a blank line behind each.")
        return super().refuse(parts, name)

    def read_key(self, example: Any) -> str:
        return " ".join(example[0])


@dataclass(frozen=True)
class TagJob(EncoderJob):
    """All settings that decide how a tagger is trained: see `EncoderJob`."""

    corpus: Examples = field(default_factory=TaggedCorpus)
    lowercase: bool = True
    batch_size: int | None = 64
    label_smoothing: float = 0.1
    metric: str = "accuracy"

    task: ClassVar[str] = "tag"
    head: ClassVar[str] = "tags"
    is_worded: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = make_recipes(warmup=150, average=0.995)
    styles: ClassVar[Mapping[str, dict[str, Any]]] = make_styles(**DROPS)

    def choose_kind(self, texts: Sequence[Any]) -> str:
        return "spaces"
