"""What a model of text is to learn: the settings that all such jobs have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from regard.core import RegardError
from regard.tasks.training.job import TrainingJob


@dataclass(frozen=True)
class TextJob(TrainingJob):
    """A job whose examples are texts, which become tokens of a vocabulary: see `train_tokenizer`.

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
