"""Text classification, one label per text: the dataset, and the settings of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.core import RegardError
from regard.data.cells import CSV
from regard.data.grammar import split_polite
from regard.data.labelled import read_labelled
from regard.data.lines import TSV
from regard.data.scripts import is_unspaced
from regard.data.split import Split
from regard.tasks.reading.corpus import TextExamples
from regard.tasks.reading.encoder_job import EncoderJob, make_recipes, make_styles
from regard.tasks.training.examples import SHARED, Examples, Fits

# a few thousand texts are soon known by heart: most of each is hidden in turn
DROPS = {"dropout": 0.3, "embed_dropout": 0.5, "token_dropout": 0.2, "word_dropout": 0.2, "spelling": "grams"}


@dataclass(frozen=True)
class LabelledCorpus(TextExamples):
    """A dataset of (text, label), of files or folders that `read_labelled` reads.

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
        options: dict[str, Any] = {"columns": self.columns, "keys": self.keys, "header": self.header}
        for path in paths:
            rows = list(read_labelled(path, **options))
            if self.columns is None and not self.header and self.parting == "even":
                check_header(path, rows)
            yield from rows

    def draw(self) -> Split:
        return split_polite()

    def read_label(self, example: Any) -> str:
        return str(example[1])


def check_header(path: str, rows: Sequence[tuple[str, str]]) -> None:
    """Check that the first row is no header: a label that no other row has, where all others repeat."""
    counts = Counter(label for _, label in rows)
    if not path.lower().removesuffix(".gz").endswith((*TSV, *CSV)) or len(counts) < 3:
        return
    text, label = rows[0]
    if counts.pop(label) == 1 and min(counts.values()) > 1:
        raise RegardError(
            f"{path} seems to begin with the names of its columns: add --columns {text[:20]},{label[:20]}, or"
            " --columns 1,2 if its first row is a text and its label."
        )


@dataclass(frozen=True)
class ClassifyJob(EncoderJob):
    """All settings that decide how a classifier is trained: see `EncoderJob`."""

    corpus: Examples = field(default_factory=LabelledCorpus)
    batch_size: int | None = 64
    metric: str = "accuracy"

    task: ClassVar[str] = "classify"
    head: ClassVar[str] = "classes"
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = make_recipes(warmup=100, average=0.99)
    styles: ClassVar[Mapping[str, dict[str, Any]]] = make_styles(**DROPS)

    def choose_kind(self, texts: Sequence[Any]) -> str:
        return "characters" if is_unspaced(texts) else "words"
