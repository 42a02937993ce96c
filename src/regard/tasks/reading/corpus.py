"""Texts as examples: the built-in phrasebook or files, told apart and split by what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.core import RegardError
from regard.data.split import Split
from regard.tasks.training.digest import digest_texts
from regard.tasks.training.examples import Examples

# the name of the embedded sentences, where others name a file
PHRASEBOOK = "phrasebook"
# examples that should have more than a few different texts
MANY = 20


@dataclass(frozen=True)
class TextExamples(Examples):
    """Examples that begin with a text; a subclass says how they are read. The phrasebook is always split alike."""

    data: tuple[str, ...] = (PHRASEBOOK,)

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
                f"{' and '.join(self.data)} leaves no {self.called} to {name}, of {len(examples)} ({texts} different):"
                " are the columns the wrong way round?"
            )
        return super().refuse(parts, name)
