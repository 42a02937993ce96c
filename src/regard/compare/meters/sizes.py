"""The sizes at which layers are counted: lengths, widths, and the kernels of a convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regard.compare.kinds import Kind
from regard.compare.settings import Advance, Dimensions, Settings

# by whether it is to be quick
Lengths = Mapping[bool, tuple[int, ...]]
Rows = list[dict[str, Any]]
LEAST_WINDOW = 32
LONGEST = 16_384


def count_sizes(
    settings: Settings,
    kinds: Mapping[str, Kind],
    advance: Advance,
    count: Callable[[Kind, Dimensions, int], Mapping[str, Any]],
    lengths: Lengths,
    windows: Lengths | None = None,
) -> Iterator[tuple[Kind, Rows, Rows]]:
    """Of each kind a row for every width, length and, of a convolution, kernel; and those of its law alone.

    A window has a law of its own from so many widths of it on, where it is cut into tiles.
    """
    for done, kind in enumerate(kinds.values(), start=1):
        law = lengths[settings.is_quick]
        if windows is not None and kind.mixing is None:
            law = list_windows(settings.dims.window, windows[settings.is_quick])
        has_kernel, rows = "k" in kind.powers, []
        for width in settings.widths:
            for kernel in settings.kernels if has_kernel else (settings.dims.kernel,):
                dims = replace(settings.dims, width=width, kernel=kernel)
                sizes = {"kind": kind.name, "d": width, "k": kernel if has_kernel else None}
                rows += [{**sizes, "n": n, **count(kind, dims, n)} for n in sorted({*lengths[settings.is_quick], *law})]
        yield kind, rows, [row for row in rows if row["n"] in law]
        advance(done / len(kinds))


def list_windows(window: int, times: tuple[int, ...]) -> tuple[int, ...]:
    """Lengths of so many widths of a window; of a very wide one fewer, as what has to be run grows with all of them."""
    window = max(window, LEAST_WINDOW)
    return tuple(sorted({max(window * each // -(-window * times[-1] // LONGEST), 2) for each in times}))


def build(kind: Kind, dims: Dimensions) -> nn.Module:
    """A layer that draws nothing from the caller's generator."""
    with torch.random.fork_rng(devices=[]):
        return kind.build(dims)
