"""Scikit-learn's digits, each pixel a vector, and what a reader of them is to learn; nothing here needs torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from regard.core import RegardError
from regard.data.lines import check_file, read_lines
from regard.data.split import Split, split_evenly
from regard.models.encoder_config import Config
from regard.tasks.training.examples import Examples
from regard.tasks.training.job import TrainingJob, check_changes

SIDE, LABELS = 8, tuple("0123456789")
# settings of the model that the task decides
FIXED = ("inputs", "input_size", "head", "labels", "max_len", "vocab_size", "pad_id")
# and what suits a few pixels that are easily told apart
STYLE = {"position": "learned", "norm_first": True, "scales_embedding": False, "start_std": 1.0}


class Pictures(Sequence[tuple[Any, str]]):
    """Pictures of numbers from 0 to 16, each made of its row when it is asked for, and its digit."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Pictures(self.rows[at])
        row = self.rows[at]
        return row[:-1].reshape(SIDE, SIDE), str(int(row[-1]))


@dataclass(frozen=True)
class Digits(Examples):
    """Pictures of digits, in files of lines of 64 numbers from 0 to 16 and the digit, with commas between."""

    called: ClassVar[str] = "pictures"
    builtin: ClassVar[str] = "digits"

    def open(self, paths: tuple[str, ...]) -> Iterable[Any]:
        try:
            # numpy itself would fetch what is named by an address
            lines = [line for path in paths for _, line in read_lines(check_file(path))]
            rows = np.loadtxt(lines or ["0"], delimiter=",", ndmin=2, dtype=np.uint8)
        except ValueError as error:
            if isinstance(error, RegardError):
                raise
            raise RegardError(f"{' and '.join(paths)} cannot be read ({error}): give lines of 65 numbers.") from None
        if rows.shape[1] != SIDE * SIDE + 1 or rows.max() > 16 or rows[:, -1].max() > 9:
            raise RegardError(f"{' and '.join(paths)} must have lines of 64 numbers from 0 to 16 and a digit.")
        return Pictures(rows)

    def draw(self) -> Split:
        from sklearn.datasets import load_digits

        found = load_digits()
        rows = np.column_stack([found.data, found.target]).astype(np.uint8)
        given: dict[str, Any] = {"held_out": self.held_out, "seed": self.seed}
        return split_evenly(Pictures(rows), key=self.read_key, label=self.read_label, **given)

    def read_label(self, example: Any) -> str:
        return str(example[1])


@dataclass(frozen=True)
class DigitsJob(TrainingJob):
    """All that decides what a reader of digits learns."""

    corpus: Examples = field(default_factory=Digits)
    batch_size: int | None = 64
    metric: str = "accuracy"

    task: ClassVar[str] = "digits"
    trainer: ClassVar[str] = "own.digits:prepare"
    metrics: ClassVar[Mapping[str, bool]] = {"loss": False, "accuracy": True, "f1": True}
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {"": {"lr": 3e-3, "warmup": 25, "schedule": "cosine"}}

    def configure(self) -> tuple[Config, set[str]]:
        changes = check_changes("digits", Config, self.changes, FIXED)
        sizes = {"inputs": "vectors", "input_size": 1, "head": "classes", "labels": LABELS, "max_len": SIDE * SIDE}
        return Config.preset(self.preset, **sizes, **{**STYLE, **changes}), set(FIXED)
