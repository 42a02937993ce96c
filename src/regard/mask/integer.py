"""Range checks of integer tensors: lengths, offsets, edges and segments."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch import Tensor

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_MOST_KNOWN = 16


class _Known(NamedTuple):
    """A tensor, how often it had been changed, bounds of its numbers, and whether they are numbers of it themselves."""

    of: weakref.ref[Tensor]
    version: int
    least: int
    most: int
    is_seen: bool


_known: dict[int, _Known] = {}


def misfit_integers(
    name: str, values: Tensor, device: torch.device, low: int | None, high: int | None, meaning: str = ""
) -> str | None:
    """The error message if these are not integers within [low, high] on the call's device, else None.

    Tensors on meta have no numbers to look at; those of a function that is being compiled or transformed have none yet,
    and are looked at when it runs.
    """
    if values.dtype not in _INTEGERS:
        return f"{name} must be integers, got {str(values.dtype).removeprefix('torch.')}."
    if values.device != device:
        return f"{name} must lie on the query's device {device}, got {values.device}."
    if values.numel() == 0 or (low is None and high is None):
        return None
    if torch.compiler.is_compiling() or values.device.type == "meta":
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(values):
        return None
    if (bounds := recall_range(values)) and _lies_within(bounds, low, high):
        return None
    # bounds that are too wide say nothing of the numbers
    least, most = _find_range(values)
    if low is not None and least < low:
        return f"{name} must be at least {low}, got {least}."
    if high is not None and most > high:
        return f"{name} must be at most {high}{f' ({meaning})' if meaning else ''}, got {most}."
    return None


def assert_range(values: Tensor | None, low: int, high: int) -> None:
    """Check on the GPU, without waiting for it, that these lie within [low, high]; no later check reads them.

    To look at a number is to wait for all that the GPU has yet to do. What lies elsewhere, or was looked at before, is
    left to those who look.
    """
    if not isinstance(values, Tensor) or not _is_on_gpu(values) or values.dtype not in _INTEGERS:
        return
    if torch.compiler.is_compiling() or values.numel() == 0:
        return
    known = _recall(values)
    if known and (known.is_seen or _lies_within((known.least, known.most), low, high)):
        return
    is_right = ((values >= low) & (values <= high)).all()
    torch._assert_async(is_right, f"lengths must lie within {low} and {high}, the number of keys")
    # what was asserted before still holds
    remember_range(values, max(low, known.least) if known else low, min(high, known.most) if known else high)


def remember_range(values: Tensor, least: int, most: int, *, is_seen: bool = False) -> None:
    """Cache that these numbers lie within [least, most], until they are changed in place.

    `is_seen` where these are the least and the greatest themselves, and not only bounds.
    """
    # tensors of inference mode do not count their changes
    if values.is_inference():
        return
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[id(values)] = _Known(weakref.ref(values), values._version, least, most, is_seen)


def recall_range(values: Tensor) -> tuple[int, int] | None:
    """The cached bounds of these very numbers, which may be wider than their range, or None."""
    known = _recall(values)
    return (known.least, known.most) if known else None


def _recall(values: Tensor) -> _Known | None:
    found = _known.get(id(values))
    # an id may be another tensor's by now
    if found is None or found.of() is not values or values.is_inference() or found.version != values._version:
        return None
    return found


def _lies_within(bounds: tuple[int, int], low: int | None, high: int | None) -> bool:
    return (low is None or bounds[0] >= low) and (high is None or bounds[1] <= high)


def _is_on_gpu(values: Tensor) -> bool:
    return values.device.type == "cuda"


def _find_range(values: Tensor) -> tuple[int, int]:
    """The least and the greatest. On a GPU they are kept in mind: all layers of a model ask for the same lengths."""
    if (known := _recall(values)) and known.is_seen:
        return known.least, known.most
    least, most = torch.stack(torch.aminmax(values)).tolist()
    # memory of the CPU can be changed by others than torch, who do not count
    if values.device.type != "cpu":
        remember_range(values, least, most, is_seen=True)
    return least, most
