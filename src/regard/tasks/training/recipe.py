"""The recipe of training: its hyperparameters, such as optimizer, learning-rate schedule, epochs and seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from regard.core import RegardError

# the part of the top rate after the warm-up, by (step, warm-up, all steps)
SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "constant": lambda step, warmup, total: 1.0,
    "linear": lambda step, warmup, total: (total - step) / max(total - warmup, 1),
    "cosine": lambda step, warmup, total: (1 + math.cos(math.pi * (step - warmup) / max(total - warmup, 1))) / 2,
    "inverse-sqrt": lambda step, warmup, total: math.sqrt(max(warmup, 1) / max(step, 1)),
}


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of training: AdamW with a learning-rate schedule; `dataclasses.asdict` of it is JSON.

    >>> recipe = Recipe(lr=0.1, warmup=10, schedule="linear", max_steps=110)
    >>> [round(recipe.rate(step, 110), 3) for step in (0, 9, 10, 60, 110)]
    [0.01, 0.1, 0.1, 0.05, 0.0]

    A step learns from `accumulate` batches. `max_steps` ends before `epochs` do. `validate_every` and `save_every` are
    steps; a run validates after every epoch where None, and is saved at each validation in any case. `patience` is how
    many validations without a better one are borne, 0 for any number. `average` is the decay of a moving average of the
    weights, which is then what validates and is kept; 0 keeps the weights themselves.
    """

    epochs: int = 10
    max_steps: int | None = None
    lr: float = 1e-3
    warmup: int = 0
    schedule: str = "constant"
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    clip: float | None = 1.0
    accumulate: int = 1
    average: float = 0.0
    patience: int | None = None
    validate_every: int | None = None
    save_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "max_steps", "accumulate", "patience", "validate_every", "save_every"):
            value, least = getattr(self, name), 0 if name == "patience" else 1
            if value is not None and value < least:
                raise RegardError(f"{name} must be at least {least}, got {value}.")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise RegardError(f"{name} must be above 0, got {value}.")
        for name in ("warmup", "weight_decay", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise RegardError(f"{name} must be 0 or above, got {getattr(self, name)}.")
        if self.seed >= 2**63:
            raise RegardError(f"seed must be below 2**63, got {self.seed}.")
        for name in ("beta1", "beta2", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise RegardError(f"{name} must lie in [0, 1), got {getattr(self, name)}.")
        if self.schedule not in SCHEDULES:
            names = ", ".join(map(repr, SCHEDULES))
            raise RegardError(f"schedule must be one of {names}, got {self.schedule!r}.")

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Recipe:
        """The recipe that `dataclasses.asdict` gave."""
        return cls(**{field.name: entries[field.name] for field in fields(cls) if field.name in entries})

    def count_steps(self, per_epoch: int) -> int:
        """The number of steps of a run, for so many an epoch."""
        total = self.epochs * per_epoch
        return total if self.max_steps is None else min(total, self.max_steps)

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step, counted from 0: linear warm-up, then the schedule."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        return self.lr * SCHEDULES[self.schedule](step, self.warmup, total)
