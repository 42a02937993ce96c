"""No mask at all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import Mask, Tile


@dataclass(frozen=True, repr=False)
class Full(Mask):
    """No mask: every query may attend to every key.

    >>> Full()
    Full()
    """

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones((), dtype=torch.bool, device=j.device)

    def covers(self, tile: Tile) -> bool:
        return True
