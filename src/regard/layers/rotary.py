"""Rotary positional embedding (RoPE) of queries and keys: https://arxiv.org/abs/2104.09864."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import RegardError
from regard.layers.positional import Tabled, check_offset


class Rotary(Tabled):
    """Rotary positional embedding: pairs of columns rotated by position · base^(−2j/d), so that q·k depends on i − j.

    >>> Rotary(head_width=2)(torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]]))
    tensor([[[[1.0000, 0.0000],
              [0.5403, 0.8415]]]])

    A call takes (batch, heads, positions, head_width), or any leading axes. Pairs are columns (2j, 2j + 1), as in the
    paper; `interleaved=False` pairs j with j + d/2, as Llama's weights want it. Of an odd width the last column stays
    as it is, and d is the even part. `offset` is the position of the first row, a number or one for each sequence:
    rotate what is new, and keep rotated keys in a cache. Half precision is rotated in float32.
    """

    def __init__(
        self, head_width: int, base: float = 10000.0, *, interleaved: bool = True, max_len: int = 1000
    ) -> None:
        super().__init__(max_len)
        if head_width < 2:
            raise RegardError(f"Rotary head_width must be at least 2, a pair of columns to rotate, got {head_width}.")
        if not base > 0:
            raise RegardError(f"Rotary base must be positive, got {base}.")
        self.head_width, self.base, self.interleaved = head_width, float(base), interleaved

    def tabulate(self, positions: Tensor) -> Tensor:
        """The cosine of each pair's angle, then the sine of each."""
        width = self.head_width // 2 * 2
        even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
        angles = positions.unsqueeze(-1) / self.base ** (even / width)
        return torch.cat((angles.cos(), angles.sin()), -1)

    def forward(
        self, x: Float[Tensor, "... positions head_width"], offset: int | Tensor = 0
    ) -> Float[Tensor, "... positions head_width"]:
        self._check(x)
        check_offset(self, offset, x.shape[0] if x.ndim > 2 else None)
        work = torch.promote_types(x.dtype, torch.float32)
        table = self.rows(offset, x.shape[-2], work, x.device)
        if table.ndim == 3:
            table = table.view(table.shape[0], *[1] * (x.ndim - 3), *table.shape[1:])
        cos, sin = table.chunk(2, -1)
        width = self.head_width // 2 * 2
        rotated, rest = x[..., :width].to(work), x[..., width:]
        one, other = (rotated[..., 0::2], rotated[..., 1::2]) if self.interleaved else rotated.chunk(2, -1)
        pair = (one * cos - other * sin, other * cos + one * sin)
        rotated = (torch.stack(pair, -1).flatten(-2) if self.interleaved else torch.cat(pair, -1)).to(x.dtype)
        return rotated if width == self.head_width else torch.cat((rotated, rest), -1)

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise RegardError(f"Rotary x must be a tensor, got {type(x).__name__}.")
        if x.ndim < 2 or x.shape[-1] != self.head_width:
            raise RegardError(
                f"Rotary x must be (batch, heads, positions, head_width={self.head_width}), got shape {tuple(x.shape)}."
            )
        if not x.is_floating_point():
            raise RegardError(f"Rotary x must be floating point, got {str(x.dtype).removeprefix('torch.')}.")

    def extra_repr(self) -> str:
        return f"head_width={self.head_width}, base={self.base}, interleaved={self.interleaved}"
