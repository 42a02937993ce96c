"""Classification, one label a text: from labelled texts to a trained classifier in a folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.data.grammar import split_polite
from regard.data.labelled import read_labelled
from regard.data.split import Split
from regard.tasks.corpus import SHARED, Examples, Fits
from regard.tasks.evaluate import is_unspaced
from regard.tasks.job import MODELS, SMALL, TURNED, EncoderJob

# a few thousand texts are soon known by heart: most of each is hidden in turn
DROPS = {"dropout": 0.3, "embed_dropout": 0.5, "token_dropout": 0.2, "word_dropout": 0.2, "spelling": "grams"}


@dataclass(frozen=True)
class LabelledCorpus(Examples):
    """Texts as (text, label), of files or folders that `read_labelled` reads.

    >>> text, label = LabelledCorpus().part().train[0]
    >>> label in ("polite", "plain", "rude")
    True

    `columns` are text and label, by number from 0 or by a header's names; None finds them. `header` skips the first row
    where they are numbers. `keys` are those of JSONL.
    """

    columns: tuple[Any, Any] | None = None
    keys: tuple[str, str] = ("text", "label")
    header: bool = False

    fits: ClassVar[Fits] = {
        **SHARED,
        "columns": lambda x: x is None or (isinstance(x, list | tuple) and len(x) == 2),
        "keys": lambda x: isinstance(x, list | tuple) and len(x) == 2 and all(type(key) is str for key in x),
        "header": lambda x: type(x) is bool,
    }
    called: ClassVar[str] = "texts"

    def open(self, paths: tuple[str, ...]) -> Iterable[Any]:
        return itertools.chain.from_iterable(
            read_labelled(path, columns=self.columns, keys=self.keys, header=self.header) for path in paths
        )

    def draw(self) -> Split:
        return split_polite()

    def read_label(self, example: Any) -> str:
        return str(example[1])


@dataclass(frozen=True)
class ClassifyJob(EncoderJob):
    """All that decides what a classifier learns: see `EncoderJob`."""

    corpus: Examples = field(default_factory=LabelledCorpus)
    batch_size: int | None = 64
    metric: str = "accuracy"

    task: ClassVar[str] = "classify"
    head: ClassVar[str] = "classes"
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {
        name: {"lr": 1e-3, "warmup": 100, "schedule": "cosine", "average": 0.99} for name in MODELS
    } | {
        "bert": {"lr": 5e-5, "warmup": 100, "schedule": "linear", "epochs": 4},
    }

    styles: ClassVar[Mapping[str, dict[str, Any]]] = {
        "attention": {**TURNED, **DROPS}, "gru": {**SMALL, **DROPS}, "cnn": {**SMALL, **DROPS, "norm_first": True},
    }  # fmt: skip

    def choose_kind(self, texts: Sequence[Any]) -> str:
        return "characters" if is_unspaced(texts) else "words"
