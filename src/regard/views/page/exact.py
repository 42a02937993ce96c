"""Queries and keys that are embedded in a page, quantised: any weight can be made again from them, and how well."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.engine.look import Look
from regard.views.page.blobs import LARGEST_HALF, Array
from regard.views.reading import weigh_rows


@dataclass(frozen=True, eq=False)
class Keys:
    """Quantised keys: less a number per channel, in half precision or in bytes.

    A softmax does not change when every key moves by the same vector: query · shift goes into the row's statistic.
    So a channel with one huge mean costs no precision, and bytes need no sign.
    """

    # what is meant is numbers × scale × step + shift, step and shift of a channel
    numbers: Array
    scale: float
    step: Tensor
    shift: Tensor
    # of the keys that the page reads, those aside that are not finite: they spoil the rows that see them, and no others
    centre: Tensor

    @classmethod
    def pack(cls, key: Tensor, small: bool) -> Keys:
        key = key.double()
        sound = key.isfinite().all(1)
        mean = _average(key, sound)
        if small:
            low, high = key.amin(0), key.amax(0)
            step = ((high - low) / 255).clamp(min=1e-30)
            numbers = ((key - low) / step).round().to(torch.uint8).numpy()
        else:
            step, rest = torch.ones_like(mean), (key - mean).numpy()
            largest = float(np.abs(rest[sound.numpy()]).max(initial=0))
            numbers = rest.astype(np.float16 if largest <= LARGEST_HALF else np.float32)
        # channels' own steps go into the query, which stays as large as it was
        scale = float(step.mean())
        # by the means of before and after, so that rounding moves no row as a whole
        centre = _average(torch.from_numpy(numbers.astype(np.float64)), sound)
        return cls(numbers, scale, step / scale, mean - centre * step, centre * scale)

    @property
    def shown(self) -> Tensor:
        """The keys as the page reads them (dequantised)."""
        return torch.from_numpy(self.numbers.astype(np.float64)) * self.scale


def _average(rows: Tensor, sound: Tensor) -> Tensor:
    return rows[sound].mean(0) if bool(sound.any()) else torch.zeros_like(rows[0])


def pack_query(look: Look, keys: Keys) -> tuple[Array, Array]:
    """Quantised queries and row statistics for these keys: weight = exp(query · key − statistic)."""
    assert look.query is not None
    assert look.logsumexp is not None
    query = look.query.double()
    wanted = query * keys.step
    kind = np.float16 if float(wanted.abs().max()) <= LARGEST_HALF else np.float32
    numbers = wanted.numpy().astype(kind)
    # what rounding the query moves all scores of a row by, goes into the statistic as well
    lost = wanted - torch.from_numpy(numbers.astype(np.float64))
    logsumexp = look.logsumexp.double() - query @ keys.shift - lost @ keys.centre
    return numbers, logsumexp.numpy().astype(np.float32)


def measure_error(look: Look, keys: Keys, query: Array, logsumexp: Array, rows: int = 16) -> float:
    """The largest total variation between a row and what the page will make of it, over rows spread evenly."""
    assert look.query is not None
    assert look.key is not None
    assert look.logsumexp is not None
    assert look.spans is not None
    if keys.numbers.dtype == np.uint8 and not bool(look.key.isfinite().all()):
        # bytes have no way to say so
        return math.inf
    n = len(look.logsumexp)
    chosen = torch.linspace(0, n - 1, min(rows, n)).long()
    spans = look.spans[chosen]
    wanted = weigh_rows(look.query[chosen], look.key, look.logsumexp[chosen], spans)
    made = weigh_rows(torch.from_numpy(query[chosen]), keys.shown, torch.from_numpy(logsumexp[chosen]), spans)
    # rows that see what is not finite are lost either way
    gap = (wanted - made).nan_to_num(0.0)
    return float(gap.abs().sum(1).max()) / 2 if gap.numel() else 0.0
