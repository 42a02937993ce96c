"""Position biases as layers that own what is learned: T5's relative bias, ALiBi, and a dense one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from regard.bias import Alibi, Dense, Relative
from regard.bias.alibi import list_slopes
from regard.core import RegardError
from regard.layers.positional import check_count


class RelativeBias(nn.Module):
    """T5's relative position bias, learned for each head and bucket of distance; a call gives the term for `bias=`.

    >>> RelativeBias(num_heads=8)()
    Relative(table=float32[8, 32])

    `table` is (num_heads, num_buckets), T5's own transposed, and is initialised to zero: no bias. `offset` places
    query i at key i + offset; None aligns the last query with the last key.
    """

    def __init__(self, num_heads: int, num_buckets: int = 32, max_distance: int = 128, two_sided: bool = True) -> None:
        super().__init__()
        check_count(self, "num_heads", num_heads)
        side = num_buckets // 2 if two_sided else num_buckets
        if side < 2 or (two_sided and num_buckets % 2):
            need = "even and at least 4 where two_sided" if two_sided else "at least 2"
            raise RegardError(f"RelativeBias num_buckets must be {need}, got {num_buckets}.")
        if max_distance <= side // 2:
            raise RegardError(
                f"RelativeBias max_distance must exceed {side // 2} for num_buckets={num_buckets}, got {max_distance}."
            )
        self.max_distance, self.two_sided = max_distance, two_sided
        self.table = nn.Parameter(torch.zeros(num_heads, num_buckets))

    def forward(self, offset: int | None = None) -> Relative:
        return Relative(self.table, self.max_distance, self.two_sided, offset)

    def extra_repr(self) -> str:
        heads, buckets = self.table.shape
        shown = f"num_heads={heads}, num_buckets={buckets}"
        return f"{shown}, max_distance={self.max_distance}, two_sided={self.two_sided}"


class AlibiBias(nn.Module):
    """ALiBi: a linear penalty on distance, one slope for each head; calling it gives the term for `bias=`.

    >>> AlibiBias(num_heads=4).slopes
    tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)

    Slopes are initialised to the paper's series. With `learns` they are a parameter, free to take any sign; without,
    they are constants, in float64 whatever the layer is brought to, and no part of the `state_dict`. `offset` places
    query i at key i + offset; None aligns the last query with the last key.
    """

    slopes: Tensor

    def __init__(self, num_heads: int, learns: bool = False) -> None:
        super().__init__()
        check_count(self, "num_heads", num_heads)
        self.num_heads, self.learns = num_heads, learns
        if learns:
            self.slopes = nn.Parameter(torch.tensor(list_slopes(num_heads)))
        else:
            self.register_buffer("slopes", self._list_slopes(None), persistent=False)

    def forward(self, offset: int | None = None) -> Alibi:
        return Alibi(self.slopes, offset)

    def _list_slopes(self, device: torch.device | None) -> Tensor:
        return torch.tensor(list_slopes(self.num_heads), dtype=torch.float64, device=device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if not self.learns:
            # a layer in half precision would round its constants for good
            self.slopes = self._list_slopes(self.slopes.device)
        return self

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, learns={self.learns}"


class DenseBias(nn.Module):
    """A learned number for each head, query and key of sequences of one length; calling it gives the term for `bias=`.

    >>> DenseBias(num_heads=2, num_queries=3, num_keys=5)()
    Dense(values=float32[2, 3, 5])

    `values` is (num_heads, num_queries, num_keys) and is initialised to zero: no bias. It is n×m by nature.
    """

    def __init__(self, num_heads: int, num_queries: int, num_keys: int) -> None:
        super().__init__()
        for name, count in {"num_heads": num_heads, "num_queries": num_queries, "num_keys": num_keys}.items():
            check_count(self, name, count)
        self.values = nn.Parameter(torch.zeros(num_heads, num_queries, num_keys))

    def forward(self) -> Dense:
        return Dense(self.values)

    def extra_repr(self) -> str:
        heads, queries, keys = self.values.shape
        return f"num_heads={heads}, num_queries={queries}, num_keys={keys}"
