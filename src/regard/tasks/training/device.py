"""The device that a model runs on, CPU or GPU, by its name."""

from __future__ import annotations

import torch

from regard.core import RegardError


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it; "auto" is a GPU where there is one.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise RegardError(f"device must be auto, cpu or cuda, got {name!r}.") from None
    if device.type not in ("cpu", "cuda"):
        raise RegardError(f"device must be auto, cpu or cuda, got {str(device)!r}.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RegardError(
            f"device {str(device)!r} is not there, torch sees {torch.cuda.device_count()} GPUs: use auto."
        )
    return device
