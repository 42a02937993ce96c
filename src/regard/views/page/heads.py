"""How informative each head is, which decides what a page shows in detail."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from regard.engine.look import Look
from regard.views.reading import count_heads, pick

RULE = "low entropy, little weight on the first token, little around the diagonal"


@dataclass(frozen=True, eq=False)
class Head:
    """One head of one attention of one sequence: tensors on the CPU without leading axes."""

    look: Look
    n: int
    m: int
    means: dict[str, float]
    # whether a text attends to itself
    is_own: bool = False

    @property
    def interest(self) -> float:
        """How informative the head is, between 0 and 1: sharp, and neither a sink nor a diagonal."""
        sharp = 1 - self.means["entropy"] / math.log(max(self.m, 2))
        near = _exceed(self.means["local"], 17 / self.m)
        if self.is_own:
            # in a short text, 8 tokens to either side are all there is; of two texts, word by word is an alignment
            near = max(near, _exceed(self._weigh_neighbours(), 3 / self.m))
        value = sharp * (1 - self.means["first"]) * (1 - near)
        return value if math.isfinite(value) else 0.0

    def _weigh_neighbours(self) -> float:
        """The share of the weights on a token itself and the two beside it; 0 where the map is not cell by cell."""
        if self.look.block != (1, 1):
            return 0.0
        table = self.look.map.double()
        near = sum(float(table.diagonal(self.m - self.n + k).sum()) for k in (-1, 0, 1))
        return near / max(float(table.sum()), 1e-9)


def _exceed(share: float, even: float) -> float:
    """How far a share is above that of uniform weights, where 1 is all there is."""
    return max(0.0, (share - even) / (1 - even)) if even < 1 else 0.0


def split(look: Look, sequence: int) -> list[Look]:
    """The heads of one sequence, as a look each.

    >>> from regard.engine.look import look
    >>> [head.entropy.shape for head in split(look(torch.ones(2, 3, 5, 4), torch.ones(2, 3, 7, 4)), 1)]
    [torch.Size([5]), torch.Size([5]), torch.Size([5])]
    """
    names = [field.name for field in fields(look) if isinstance(getattr(look, field.name), Tensor)]
    picked = {name: pick(look, name, sequence).detach().cpu() for name in names if name not in ("key", "chosen")}
    keys = None if look.key is None else pick(look, "key", sequence).detach().cpu()
    count = count_heads(look)
    return [
        Look(**{name: x[h] for name, x in picked.items()}, chosen=look.chosen.cpu(), terms=look.terms, why=look.why,
             key=None if keys is None else keys[h * len(keys) // count])
        for h in range(count)
    ]  # fmt: skip


def measure(look: Look, is_own: bool = False) -> Head:
    """A head with the means of its rows' statistics; `is_own` where a text attends to itself."""
    received = look.received.double()
    whole = float(received.sum())
    means = {name: float(getattr(look, name).double().mean()) for name in ("entropy", "first", "local", "distance")}
    means["received"] = float(received.max()) / whole if whole else 0.0
    return Head(look, look.entropy.shape[-1], look.received.shape[-1], means, is_own)


def shrink(map: Tensor, n: int, width: int, longest: int = 64) -> np.ndarray:
    """Downsample a map to at most 64 by 64 cells: of the weight of a cell's queries, the share that lies in the cell.

    >>> shrink(torch.eye(128), 128, 1).shape
    (64, 64)
    """
    rows, columns = (-(-size // longest) or 1 for size in map.shape)
    big = torch.nn.functional.pad(map, (0, -map.shape[1] % columns, 0, -map.shape[0] % rows))
    big = big.reshape(big.shape[0] // rows, rows, big.shape[1] // columns, columns).sum((1, 3))
    first = torch.arange(big.shape[0]) * rows * width
    queries = (n - first).clamp(max=rows * width, min=1)
    return (big / queries[:, None]).abs().float().numpy()
