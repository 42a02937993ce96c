"""Block shapes measured on this device, and kept in a file for the next time.

With `REGARD_TUNE=1` in the environment, the first call of a kind tries the shapes that are likely and keeps the
fastest; that takes seconds, which is why nobody pays for it unasked. The file lies in `REGARD_CACHE`, or in
~/.cache/regard.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

import torch
import triton

from regard.core import RegardError
from regard.core.files import write_whole
from regard.engine.backends.fused.recipe import Recipe
from regard.engine.backends.fused.shapes import Shape, choose, name_key
from regard.engine.backends.fused.wake import wait
from regard.processor import find_cache

_log = logging.getLogger("regard")
_ROUNDS = 5
# bytes of shared memory
ROOMY = 200 * 2**10

# (rows, keys, warps, stages) that were best somewhere
_PRODUCTS = [
    (128, 128, 8, 3), (128, 64, 4, 3), (128, 64, 4, 2), (128, 64, 8, 3), (64, 128, 4, 3), (64, 64, 4, 3),
    (64, 64, 4, 2), (128, 64, 8, 2), (128, 64, 8, 1), (32, 64, 8, 2),
    (32, 128, 4, 2), (32, 128, 4, 3), (32, 64, 4, 3), (64, 128, 8, 3), (64, 32, 4, 1), (64, 64, 4, 1), (32, 32, 4, 1),
    (16, 16, 4, 1),
]  # fmt: skip
_FEATURES = [(128, 32, 4, 1), (64, 32, 2, 1), (32, 32, 1, 1), (256, 32, 8, 1), (128, 16, 4, 1), (128, 64, 4, 1)]


def is_asked() -> bool:
    """Whether shapes are to be measured."""
    return os.environ.get("REGARD_TUNE") == "1"


def pick(
    kernel: str, recipe: Recipe, is_half: bool, widths: tuple[int, int], device: torch.device,
    launch: Callable[[Shape], Any] | None,
) -> Shape:  # fmt: skip
    """The shape for a call: kept from an earlier time, or measured now where that is asked for, or the table's.

    Without `launch` there is nothing to measure.
    """
    key = name_key(kernel, recipe, is_half, *widths)
    usual = choose(kernel, recipe, is_half, *widths, is_roomy=has_room(device))
    kept = recall(device).get(key)
    if kept is not None:
        return kept
    if launch is None or not is_asked():
        return usual
    _log.warning("measuring block shapes for %s", key)
    shapes = [Shape(*s) for s in (_PRODUCTS if recipe.is_dot else _FEATURES)]
    if kernel == "keys" and not recipe.is_dot:
        shapes = [Shape(s.keys, s.rows, s.warps, s.stages) for s in shapes]
    if recipe.is_dot and widths[0] <= 32:
        # as in `choose`
        shapes = [shape for shape in shapes if max(shape.rows, shape.keys) <= 32]
    times = {shape: measure(launch, shape) for shape in dict.fromkeys([usual, *shapes])}
    best = min(times, key=lambda shape: times[shape])
    remember(device, key, best)
    return best


@cache
def has_room(device: torch.device) -> bool:
    """Whether large tiles fit a multiprocessor, as on a Hopper."""
    if device.type != "cuda":
        return False
    # it is being made, and would be made here once more
    wait()
    found: int = triton.runtime.driver.active.utils.get_device_properties(device.index)["max_shared_mem"]
    return found >= ROOMY


def measure(launch: Callable[[Shape], Any], shape: Shape) -> float:
    """Milliseconds of a launch, infinite where the device has no room for the shape."""
    try:
        launch(shape)
    except triton.runtime.errors.OutOfResources:
        return float("inf")
    times = []
    for _ in range(_ROUNDS):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch(shape)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return float(sorted(times)[_ROUNDS // 2])


def find_file(device: torch.device) -> pathlib.Path:
    """Where the shapes of a device are kept; each model of device has its own."""
    return _name_file(find_cache(), device)


@cache
def _name_file(folder: pathlib.Path, device: torch.device) -> pathlib.Path:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return folder / f"shapes-{re.sub('[^A-Za-z0-9]+', '-', name)}.json"


def recall(device: torch.device) -> dict[str, Shape]:
    """All shapes kept for a device."""
    return _read(find_file(device))


@cache
def _read(file: pathlib.Path) -> dict[str, Shape]:
    try:
        table = json.loads(file.read_text())
        return {key: Shape(**fields) for key, fields in table.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RegardError(f"{file} is not a table of block shapes ({error}): delete it.") from None


def remember(device: torch.device, key: str, shape: Shape) -> None:
    """Keep a shape; a crash leaves the old file or the new one, never half of one."""
    file = find_file(device)
    # another process may have written since
    _read.cache_clear()
    table = {name: asdict(known) for name, known in _read(file).items()} | {key: asdict(shape)}
    write_whole(file, json.dumps(table, indent=1, sort_keys=True))
    _read.cache_clear()
