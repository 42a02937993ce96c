"""The rule that all masks of integers share."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# tensors of which the range is known, how often they had been changed by then, and the range
_known: dict[int, tuple[weakref.ref[Tensor], int, int, int]] = {}
_MOST_KNOWN = 16


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
    least, most = _find_range(values)
    if low is not None and least < low:
        return f"{name} must be at least {low}, got {least}."
    if high is not None and most > high:
        return f"{name} must be at most {high}{f' ({meaning})' if meaning else ''}, got {most}."
    return None


def vouch(values: Tensor | None, low: int, high: int) -> None:
    """Let a GPU itself stop, when it comes to it, unless these lie within [low, high]; nobody looks at them again.

    To look at a number is to wait for all that the GPU has yet to do. What lies elsewhere is left to those who look.
    """
    if not isinstance(values, Tensor) or values.device.type != "cuda" or values.dtype not in _INTEGERS:
        return
    if torch.compiler.is_compiling() or values.numel() == 0 or recall_range(values):
        return
    is_right = ((values >= low) & (values <= high)).all()
    torch._assert_async(is_right, f"lengths must lie within 0 and {high}, the number of keys")
    remember_range(values, low, high)


def remember_range(values: Tensor, least: int, most: int) -> None:
    """Keep in mind that the numbers lie within [least, most], until they are changed in place."""
    # tensors of inference mode do not count their changes
    if values.is_inference():
        return
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[id(values)] = weakref.ref(values), values._version, least, most


def recall_range(values: Tensor) -> tuple[int, int] | None:
    """What was kept in mind of these very numbers, or None."""
    found = _known.get(id(values))
    # an id may be another tensor's by now
    if found is None or found[0]() is not values or values.is_inference() or found[1] != values._version:
        return None
    return found[2], found[3]


def _find_range(values: Tensor) -> tuple[int, int]:
    """The least and the greatest. On a GPU they are kept in mind: all layers of a model ask for the same lengths."""
    if known := recall_range(values):
        return known
    least, most = torch.stack(torch.aminmax(values)).tolist()
    # memory of the CPU can be changed by others than torch, who do not count
    if values.device.type != "cpu":
        remember_range(values, least, most)
    return least, most
