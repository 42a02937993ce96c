"""The rule that all masks of integers share."""

from __future__ import annotations

import torch
from torch import Tensor

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def misfit_integers(
    name: str, values: Tensor, device: torch.device, low: int | None, high: int | None, meaning: str = ""
) -> str | None:
    """Why these are not integers of the call's device within [low, high], or None."""
    if values.dtype not in _INTEGERS:
        return f"{name} must be integers, got {str(values.dtype).removeprefix('torch.')}."
    if values.device != device:
        return f"{name} must lie on the query's device {device}, got {values.device}."
    if values.numel() == 0 or (low is None and high is None):
        return None
    least, most = (int(x) for x in torch.aminmax(values))
    if low is not None and least < low:
        return f"{name} must be at least {low}, got {least}."
    if high is not None and most > high:
        return f"{name} must be at most {high}{f' ({meaning})' if meaning else ''}, got {most}."
    return None
