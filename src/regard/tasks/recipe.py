"""How a model is trained, and on what: everything about a run that is not its task."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from regard.core import RegardError
from regard.extras import install

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# the part of the top rate after the warm-up, by (step, warm-up, all steps)
SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "constant": lambda step, warmup, total: 1.0,
    "linear": lambda step, warmup, total: (total - step) / max(total - warmup, 1),
    "cosine": lambda step, warmup, total: (1 + math.cos(math.pi * (step - warmup) / max(total - warmup, 1))) / 2,
    "inverse-sqrt": lambda step, warmup, total: math.sqrt(max(warmup, 1) / max(step, 1)),
}
# float16 would need a loss scale, one more thing to keep
PRECISIONS = ("32-true", "bf16-mixed", "bf16-true", "64-true")
ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")
# by what a process knows of those on other nodes: torchrun, any launcher, SLURM, or the user's own hand
LAUNCHED = ({"TORCHELASTIC_RUN_ID"}, {"RANK", "WORLD_SIZE"}, {"SLURM_PROCID"}, {"MASTER_ADDR", "NODE_RANK"})


@dataclass(frozen=True)
class Recipe:
    """AdamW with a schedule, for so many epochs; `dataclasses.asdict` of it is JSON.

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
        """What `dataclasses.asdict` gave."""
        return cls(**{field.name: entries[field.name] for field in fields(cls) if field.name in entries})

    def count_steps(self, per_epoch: int) -> int:
        """All steps of a run whose epochs have so many."""
        total = self.epochs * per_epoch
        return total if self.max_steps is None else min(total, self.max_steps)

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        return self.lr * SCHEDULES[self.schedule](step, self.warmup, total)


@dataclass(frozen=True)
class Machine:
    """The devices a run uses; none of it changes what is learned, but for rounding and the batches' size.

    >>> Machine(accelerator="cpu").launch().device
    device(type='cpu')

    The words are Lightning Fabric's. Under `torchrun`, how many devices and nodes there are is its own to say.
    """

    accelerator: str = "auto"
    devices: str = "1"
    strategy: str = "auto"
    num_nodes: int = 1
    precision: str = "32-true"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise RegardError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}.")
        if self.accelerator not in ACCELERATORS:
            raise RegardError(f"accelerator must be one of {', '.join(ACCELERATORS)}, got {self.accelerator[:40]!r}.")
        _count_devices(self.devices)

    def launch(self, logs: str | None = None) -> Fabric:
        """The processes, ready; `logs` is a folder for TensorBoard."""
        if self.num_nodes > 1 and not any(names <= os.environ.keys() for names in LAUNCHED):
            # it would wait for the others for ever
            raise RegardError(
                f"num_nodes is {self.num_nodes}, but nothing started the others: run the same command on each by"
                " torchrun, see torchrun --help."
            )
        try:
            import torch
            from lightning.fabric import Fabric
        except ImportError:
            raise RegardError(f"training needs the package lightning: {install('train')}.") from None
        if self.accelerator in ("cuda", "gpu") and not torch.cuda.is_available():
            raise RegardError(f"accelerator {self.accelerator!r} is not there, torch sees no GPU: use auto or cpu.")
        devices, strategy, num_nodes = _count_devices(self.devices), self.strategy, self.num_nodes
        if "TORCHELASTIC_RUN_ID" in os.environ:
            devices = int(os.environ["LOCAL_WORLD_SIZE"]) if devices == 1 else devices
            num_nodes = int(os.environ["GROUP_WORLD_SIZE"]) if num_nodes == 1 else num_nodes
            # one process a device is what torchrun starts
            strategy = "ddp" if strategy == "auto" else strategy
        try:
            fabric = Fabric(
                accelerator=self.accelerator,
                devices=devices,
                strategy=strategy,
                num_nodes=num_nodes,
                precision=self.precision,
                loggers=[] if logs is None else [_open_logger(logs)],
            )
            fabric.launch()
        # whatever Fabric says of words that do not fit each other or the machine
        except Exception as error:
            if isinstance(error, RegardError):
                raise
            reason = " ".join(str(error).split())[:120]
            raise RegardError(
                f"this machine cannot be set up ({reason}): see accelerator, devices, strategy."
            ) from None
        return fabric


def holds_parts(fabric: Fabric) -> bool:
    """Whether each process has a part of the weights only."""
    return "FSDP" in type(fabric.strategy).__name__


def _count_devices(text: str) -> str | int | list[int]:
    if text == "auto":
        return text
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise RegardError(f"devices must be 'auto', a count, or numbers as 0,2, got {text!r}.") from None
    return numbers[0] if len(numbers) == 1 and "," not in text else numbers


def _open_logger(folder: str) -> Any:
    try:
        from lightning.fabric.loggers import TensorBoardLogger

        return TensorBoardLogger(folder, name="", version="logs")
    except ImportError:
        raise RegardError(f"logs for TensorBoard need its package: {install('logs')}.") from None
