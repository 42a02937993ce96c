"""Text datasets, of files or the built-in phrasebook, split by their texts; and settings that text jobs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.core import RegardError
from regard.data.split import Split
from regard.tasks.training.digest import digest_texts
from regard.tasks.training.examples import Examples
from regard.tasks.training.job import TrainingJob

# the name of the embedded sentences, where others name a file
PHRASEBOOK = "phrasebook"
# examples that should have more than a few different texts
MANY = 20


@dataclass(frozen=True)
class TextExamples(Examples):
    """A dataset whose examples begin with a text; a subclass reads them. The phrasebook has one fixed split."""

    builtin: ClassVar[str] = PHRASEBOOK

    def read_key(self, example: Any) -> str:
        return str(example[0])

    def digest(self, examples: Sequence[Any]) -> str:
        return digest_texts(examples)

    def refuse(self, parts: Split, name: str) -> RegardError:
        examples = [example for part in parts for example in part]
        texts = len({self.read_key(example) for example in examples})
        # texts seldom repeat, labels do
        if len(examples) >= MANY and texts * 10 < len(examples):
            return RegardError(
                f"{' and '.join(self.data)} leaves no {self.called} for {name}, of {len(examples)} ({texts} different):"
                " are the columns the wrong way round?"
            )
        return super().refuse(parts, name)


@dataclass(frozen=True)
class TextJob(TrainingJob):
    """Settings of training on text: its tokenizer, vocabulary and maximum length; see `train_tokenizer`.

    Texts of more than `max_length` tokens are cut, or left out.
    """

    vocab_size: int = 20_000
    min_count: int = 1
    lowercase: bool = False
    form: str = "NFC"
    max_length: int | None = 512
    label_smoothing: float = 0.0

    counts: ClassVar[tuple[str, ...]] = ("vocab_size", "min_count", "batch_size", "max_tokens", "max_length")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise RegardError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}.")
