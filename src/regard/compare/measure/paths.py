"""Paths: which outputs depend on which inputs, and how many layers or steps lie from the first token to the last.

Read off running layers: an input is NaN, and what depends on it becomes NaN.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from regard.compare.kinds import KINDS, Dimensions, Kind
from regard.compare.measure.operations import Lengths, list_sizes, name_sizes
from regard.compare.measure.threads import one_thread
from regard.compare.settings import Advance, Settings
from regard.core import RegardError

Model = Callable[[Tensor], Tensor]
# two tokens, and lengths that no kernel and no window divides; one token alone has no path to speak of
LENGTHS: Lengths = {True: (2, 8, 33), False: (2, 8, 33, 50, 101)}
# of the pictures: tokens, and how many layers at most
SHOWN, DEPTHS = 24, (1, 2, 4)
# inputs at once
CHUNK = 32


@torch.no_grad()
def find_dependence(
    model: Model, n: int, width: int, *, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> Bool[Tensor, "outputs inputs"]:
    """Which of n outputs depend on which of n inputs: the boolean Jacobian of a model that maps rows to rows.

    >>> find_dependence(lambda rows: rows.cumsum(1), 3, width=2).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)

    No influence is too small to be seen, and one that a weight of zero cuts off counts as well. The model must take
    rows of this dtype on this device, and pass NaN on.
    """
    rows = _draw(model, n, width, dtype, device)
    found = []
    for inputs in torch.arange(n, device=device).split(CHUNK):
        poisoned = rows.repeat(len(inputs), 1, 1)
        poisoned[torch.arange(len(inputs), device=device), inputs] = float("nan")
        found.append(model(poisoned).isnan().any(-1))
    return torch.cat(found).mT


@torch.no_grad()
def find_reach(
    model: Model, n: int, width: int, *, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> int | None:
    """How far back the last output sees: the greatest t for which it depends on the input t before it.

    >>> find_reach(nn.Sequential(*(KINDS["conv"].build(Dimensions(8, 3)).double() for _ in range(4))), 9, width=8)
    4

    None: it depends on no input.
    """
    rows = _draw(model, n, width, dtype, device)

    def is_seen(first: int) -> bool:
        poisoned = rows.clone()
        poisoned[:, : first + 1] = float("nan")
        return bool(model(poisoned)[:, -1].isnan().any())

    # the more inputs are NaN from the left, the more shows: few runs find where it begins
    farthest = bisect_left(range(n), True, key=is_seen)
    return n - 1 - farthest if farthest < n else None


def _draw(model: Model, n: int, width: int, dtype: torch.dtype, device: str) -> Tensor:
    """Ordinary rows, for which the model gives no NaN."""
    rows = torch.randn(1, n, width, dtype=dtype, generator=torch.Generator().manual_seed(0)).to(device)
    if model(rows).isnan().any():
        raise RegardError("model gives NaN for ordinary rows: what depends on what is read from NaN that is put in.")
    return rows


@torch.no_grad()
def find_path(kind: Kind, dims: Dimensions, n: int) -> int | None:
    """How many layers, of a recurrence steps, are run until the last of n tokens depends on the first.

    >>> find_path(KINDS["conv"], Dimensions(width=8, kernel=5), 9)
    4

    None: it never does.
    """
    rows = _draw(_build(kind, dims), n, dims.width, torch.float64, "cpu")
    rows[:, 0] = float("nan")
    if kind.is_recurrent:
        layer = _build(kind, dims)
        if not hasattr(layer, "walk"):
            raise RegardError(
                f"kind {kind.name!r} is recurrent: its layer needs walk(rows), the state after each step."
            )
        first = _list_reached(layer, rows)
        rows = rows.nan_to_num()
        rows[:, -1] = float("nan")
        last = _list_reached(layer, rows)
        # from the step that reads the first token to the one that reads the last, if its state still knows of the first
        end = last.index(True) if True in last else None
        return end - first.index(True) + 1 if end is not None and first[end] else None
    length, seen = 0, set[bytes]()
    while True:
        rows, length = _build(kind, dims)(rows).tanh(), length + 1
        reached = rows[0].isnan().any(-1)
        if reached[-1]:
            return length
        if (here := bytes(reached.tolist())) in seen:
            # where it has been before it will go in circles
            return None
        seen.add(here)


def _list_reached(layer: nn.Module, rows: Tensor) -> list[bool]:
    """Whether NaN has come to the state after each step."""
    return [bool(state.isnan().any()) for state in layer.walk(rows)]  # type: ignore[operator]


def _build(kind: Kind, dims: Dimensions) -> nn.Module:
    """A layer that draws nothing from the caller's generator."""
    with torch.random.fork_rng(devices=[]):
        return kind.build(dims).double()


@one_thread()
def measure_paths(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Lengths of paths over lengths of sequences, widths and kernels; and maps of what sees what, for pictures.

    Always on the CPU: what depends on what is the same everywhere.
    """
    rows: list[dict[str, Any]] = []
    maps: list[dict[str, Any]] = []
    for at, kind in enumerate(kinds.values()):
        for dims in list_sizes(settings, kind):
            for n in LENGTHS[settings.is_quick]:
                path = {"length": find_path(kind, dims, n), "formula": kind.path(dims, n)}
                rows.append({**name_sizes(kind, dims, n), **path})
        maps += draw_maps(kind, settings.dims)
        advance((at + 1) / len(kinds))
    return {"rows": rows, "maps": maps}


def draw_maps(kind: Kind, dims: Dimensions) -> list[dict[str, Any]]:
    """What sees what after one layer, two and four, until more of them change nothing.

    >>> [found] = draw_maps(KINDS["rnn"], Dimensions(width=8))
    >>> found["seen"][0], found["seen"][-1]
    ('100000000000000000000000', '111111111111111111111111')

    A window is no wider than a third of the picture.
    """
    # what depends on what is the same for a narrow layer as for a wide one, and for one head as for many
    dims = replace(dims, width=2, heads=1, window=min(dims.window, SHOWN // 3))
    maps: list[dict[str, Any]] = []
    for layers in DEPTHS:
        found = find_dependence(_stack(kind, dims, layers), SHOWN, dims.width)
        seen = ["".join(map(str, row)) for row in found.int().tolist()]
        if maps and maps[-1]["seen"] == seen:
            break
        maps.append({"kind": kind.name, "layers": layers, "seen": seen})
    return maps


def _stack(kind: Kind, dims: Dimensions, layers: int) -> nn.Module:
    parts = [part for _ in range(layers) for part in (_build(kind, dims), nn.Tanh())]
    return nn.Sequential(*parts)
