"""Who depends on whom, read off a running model: an input is NaN, and what depends on it becomes NaN."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.core import RegardError

Model = Callable[[Tensor], Tensor]
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

    No influence is too small to be seen, and one that a weight of zero cuts off counts as well.
    """
    rows = draw_rows(model, n, width, dtype, device)
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

    >>> find_reach(lambda rows: rows + rows.roll(4, 1), 9, width=8)
    4

    None: it depends on no input.
    """
    rows = draw_rows(model, n, width, dtype, device)

    def is_seen(first: int) -> bool:
        poisoned = rows.clone()
        poisoned[:, : first + 1] = float("nan")
        return bool(model(poisoned)[:, -1].isnan().any())

    # the more inputs are NaN from the left, the more shows: few runs find where it begins
    farthest = bisect_left(range(n), True, key=is_seen)
    return n - 1 - farthest if farthest < n else None


def draw_rows(model: Model, n: int, width: int, dtype: torch.dtype, device: str) -> Tensor:
    """Ordinary rows, for which the model gives no NaN."""
    rows = torch.randn(1, n, width, dtype=dtype, generator=torch.Generator().manual_seed(0)).to(device)
    if model(rows).isnan().any():
        raise RegardError("model gives NaN for ordinary rows: what depends on what is read from NaN that is put in.")
    return rows
