"""The hardware of a run: devices, data-parallel processes and numeric precision, by Lightning Fabric."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.core import RegardError
from regard.extras import install

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# float16 would need a loss scale, one more thing to keep
PRECISIONS = ("32-true", "bf16-mixed", "bf16-true", "64-true")
ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")
# by what a process knows of those on other nodes: torchrun, any launcher, SLURM, or the user's own hand
LAUNCHED = ({"TORCHELASTIC_RUN_ID"}, {"RANK", "WORLD_SIZE"}, {"SLURM_PROCID"}, {"MASTER_ADDR", "NODE_RANK"})


@dataclass(frozen=True)
class Machine:
    """The hardware of a run; it changes nothing that is learned, but for rounding and the size of a batch.

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
        """Start the processes, as a Fabric; `logs` is a folder for TensorBoard."""
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
    """Whether the weights are sharded (FSDP): each process has a part of them only."""
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
