"""Each case by its definition, in plain torch: the eager peer in the dtype of the case, the truth in a higher one.

All take `rows`, a slice of the queries, and give the output of these rows: n×m numbers need not be held at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Plain = Callable[..., Tensor]
# of a batch, a head, a query and a key: whether they meet, or their score anew, which then comes first
Mod = Callable[..., Tensor]


def scores(rows: slice, query: Tensor, key: Tensor) -> Tensor:
    """Dot products over the root of the width; a key head serves a group of query heads."""
    if key.ndim == 4 and key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scale: float = query.shape[-1] ** -0.5
    return query[..., rows, :] @ key.mT * scale


def index(rows: slice, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
    """Numbers of batches, heads, these queries and keys, which broadcast to their scores."""
    batch, head, i, j = (torch.arange(size, device=query.device) for size in (*query.shape[:3], key.shape[2]))
    return batch[:, None, None, None], head[:, None, None], i[rows, None], j


def softmax(
    rows: slice, query: Tensor, key: Tensor, value: Tensor, mask: Mod | None = None, change: Mod | None = None
) -> Tensor:
    if value.ndim == 4 and value.shape[1] != query.shape[1]:
        value = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
    found = scores(rows, query, key)
    if change is not None:
        found = change(found, *index(rows, query, key))
    if mask is not None:
        found = found.masked_fill(~mask(*index(rows, query, key)), -torch.inf)
    return torch.softmax(found, -1) @ value


def window(rows: slice, query: Tensor, key: Tensor, value: Tensor, before: int | None = None, after: int = 0) -> Tensor:
    """Softmax over the keys from `before` back (None: all) to `after` ahead; keys that no row sees are left out."""
    start, stop, _ = rows.indices(query.shape[-2])
    low, high = 0 if before is None else max(start - before, 0), min(stop + after, key.shape[-2])
    i = torch.arange(start, stop, device=query.device)[:, None]
    j = torch.arange(low, high, device=query.device)
    near = j <= i + after if before is None else (j <= i + after) & (j >= i - before)
    found = scores(rows, query, key[..., low:high, :]).masked_fill(~near, -torch.inf)
    return torch.softmax(found, -1) @ value[..., low:high, :]


def biased(rows: slice, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    return torch.softmax(scores(rows, query, key) + bias[..., rows, :], -1) @ value


def additive(rows: slice, query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    mixed = torch.tanh(query[..., rows, None, :] + key[..., None, :, :])
    return torch.softmax(mixed @ weight, -1) @ value


def gaussian(rows: slice, query: Tensor, key: Tensor, value: Tensor, width: float = 1.0) -> Tensor:
    """In one dimension."""
    return torch.softmax(-0.5 * ((query[..., rows, :] - key.mT) * width) ** 2, -1) @ value


def relu(rows: slice, query: Tensor, key: Tensor, value: Tensor, scale: float = 1.0) -> Tensor:
    return torch.relu(scores(rows, query, key)) * scale @ value


def sigmoid(rows: slice, query: Tensor, key: Tensor, value: Tensor, shift: float = 0.0) -> Tensor:
    return torch.sigmoid(scores(rows, query, key) + shift) @ value


def entmax(rows: slice, query: Tensor, key: Tensor, value: Tensor, alpha: float = 1.5) -> Tensor:
    low = scores(rows, query, key)
    low = (low - low.amax(-1, keepdim=True).detach()) * (alpha - 1)
    power = 1 / (alpha - 1)
    tau = _find_threshold(low.detach(), power)
    # one step of Newton's rule brings the gradient of the threshold: at the solution it is that of the rule itself
    gap = (low - tau).clamp(min=0)
    rate = (power * (gap.detach() ** (power - 1)) * (gap.detach() > 0)).sum(-1, keepdim=True)
    tau = tau + ((gap**power).sum(-1, keepdim=True) - 1) / rate
    return (low - tau).clamp(min=0) ** power @ value


def _find_threshold(low: Tensor, power: float) -> Tensor:
    """By bisection: the best score is 0, so the threshold lies in [-1, 0]."""
    tau, width = low.new_full((*low.shape[:-1], 1), -1.0), 1.0
    for _ in range(50 if low.dtype == torch.float64 else 25):
        width /= 2
        total = (low - tau - width).clamp_(min=0).pow_(power).sum(-1, keepdim=True)
        tau = torch.where(total >= 1, tau + width, tau)
    return tau


def by_rows(plain: Plain, step: int, query: Tensor, *others: Tensor) -> Tensor:
    """The output, `step` queries at a time."""
    starts = range(0, query.shape[-2], step)
    return torch.cat([plain(slice(start, start + step), query, *others) for start in starts], -2)
