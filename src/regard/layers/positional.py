"""Positional encodings, sinusoidal and learned: https://d2l.ai/chapter_attention-mechanisms-and-transformers/self-attention-and-positional-encoding.html."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.inputs import check_dtype, check_rate
from regard.mask.integer import misfit_integers


class Tabled(nn.Module):
    """A layer with a table of numbers for each position, in float64: a subclass computes it, calls read its `rows`.

    They are kept between calls, rounded to the caller's dtype on the caller's device, and grow when a sequence is
    longer than any before. They are no part of the `state_dict`.
    """

    def __init__(self, max_len: int) -> None:
        super().__init__()
        check_count(self, "max_len", max_len)
        self.max_len = max_len
        self._table: Tensor | None = None

    def tabulate(self, positions: Tensor) -> Tensor:
        """The numbers of each position, in a new last axis; positions and numbers are float64."""
        raise NotImplementedError

    def rows(self, offset: int | Tensor, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The numbers of n positions from `offset` on, (n, numbers); (batch, n, numbers) for one offset a sequence."""
        # a compiled graph makes them anew: what a call leaves behind for the next is not its matter
        if isinstance(offset, Tensor) or torch.compiler.is_compiling():
            return self.tabulate(find_positions(offset, n, device).double()).to(dtype)
        table = self._table
        if table is None or table.dtype != dtype or table.device != device:
            table = self._fill(self.max_len, dtype, device)
        end = offset + n
        if end > len(table):
            # a leap far ahead is no reason to keep all that lies between
            if offset > 0 and end > 2 * len(table):
                return self.tabulate(find_positions(offset, n, device).double()).to(dtype)
            table = self._fill(max(end, 2 * len(table)), dtype, device)
        return table[offset:end]

    def _fill(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        # tensors of inference mode could not take part in training later
        with torch.inference_mode(False), torch.no_grad():
            table = self.tabulate(torch.arange(count, dtype=torch.float64, device=device)).to(dtype)
        # the tensors of a tracer are worth nothing after it
        if type(table) is Tensor:
            self._table = table
        return table

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files are of the layer; the table is recomputed."""
        return {**self.__dict__, "_table": None}


class PositionalEncoding(Tabled):
    """Sinusoidal positional encoding, added to each row: sin(i/10000^(2j/d)) in column 2j, the cosine in 2j + 1.

    >>> PositionalEncoding(num_hiddens=4)(torch.zeros(1, 2, 4))
    tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
             [0.8415, 0.5403, 0.0100, 0.9999]]])

    `max_len` positions are made at once and more when they are needed: it is no limit. `offset` is the position of the
    first row, a number or one for each sequence, for decoding step by step.
    """

    def __init__(self, num_hiddens: int, dropout: float = 0.0, max_len: int = 1000) -> None:
        super().__init__(max_len)
        check_count(self, "num_hiddens", num_hiddens)
        check_rate(self, dropout)
        self.num_hiddens = num_hiddens
        self.dropout = nn.Dropout(dropout)

    @property
    def P(self) -> Float[Tensor, "1 positions num_hiddens"]:  # noqa: N802
        """The encodings made so far, as of the last call in dtype and device."""
        like = torch.empty(0) if self._table is None else self._table
        return self.rows(0, max(self.max_len, len(like)), like.dtype, like.device)[None]

    def tabulate(self, positions: Tensor) -> Tensor:
        even = torch.arange(0, self.num_hiddens, 2, dtype=torch.float64, device=positions.device)
        angles = positions.unsqueeze(-1) / 10000 ** (even / self.num_hiddens)
        # an odd width has one sine more than cosines
        return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)[..., : self.num_hiddens]

    def forward(
        self,
        X: Float[Tensor, "batch positions num_hiddens"],
        offset: int | Tensor = 0,
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        check_sequence(self, X, self.num_hiddens)
        check_offset(self, offset, X.shape[0])
        out: Tensor = self.dropout(X + self.rows(offset, X.shape[1], X.dtype, X.device))
        return out

    def extra_repr(self) -> str:
        return f"num_hiddens={self.num_hiddens}, max_len={self.max_len}"


class LearnedPositionalEncoding(nn.Module):
    """Learned positional encoding: a vector for each of `max_len` positions, added to its row.

    >>> layer = LearnedPositionalEncoding(num_hiddens=4, max_len=10)
    >>> layer(torch.zeros(2, 3, 4)).equal(layer.P[:, :3].expand(2, 3, 4))
    True

    The parameter `P` is (1, max_len, num_hiddens), initialised from a normal distribution of standard deviation 0.02,
    as BERT's and ViT's are; the textbook's BERT calls it `pos_embedding`. `offset` is the position of the first row, a
    number or one for each sequence, for decoding step by step.
    """

    def __init__(self, num_hiddens: int, dropout: float = 0.0, max_len: int = 1000) -> None:
        super().__init__()
        check_count(self, "num_hiddens", num_hiddens)
        check_count(self, "max_len", max_len)
        check_rate(self, dropout)
        self.num_hiddens, self.max_len = num_hiddens, max_len
        self.dropout = nn.Dropout(dropout)
        self.P = nn.Parameter(nn.init.normal_(torch.empty(1, max_len, num_hiddens), std=0.02))

    def forward(
        self,
        X: Float[Tensor, "batch positions num_hiddens"],
        offset: int | Tensor = 0,
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        check_sequence(self, X, self.num_hiddens)
        check_offset(self, offset, X.shape[0])
        end = find_end(offset, X.shape[1])
        if end is not None and end > self.max_len:
            raise RegardError(
                f"LearnedPositionalEncoding has max_len={self.max_len} positions and X needs {end}: make max_len"
                " larger, or take PositionalEncoding, which has no end."
            )
        if isinstance(offset, Tensor):
            rows = F.embedding(find_positions(offset, X.shape[1], X.device), self.P[0])
        else:
            rows = self.P[:, offset : offset + X.shape[1]]
        out: Tensor = self.dropout(X + rows.to(X.dtype))
        return out

    def extra_repr(self) -> str:
        return f"num_hiddens={self.num_hiddens}, max_len={self.max_len}"


def find_positions(offset: int | Tensor, n: int, device: torch.device) -> Tensor:
    """The positions of n rows from `offset` on: (n,), or (batch, n) for one offset a sequence.

    >>> find_positions(torch.tensor([0, 5]), 3, torch.device("cpu"))
    tensor([[0, 1, 2],
            [5, 6, 7]])
    """
    steps = torch.arange(n, device=device)
    return offset.to(device).unsqueeze(-1) + steps if isinstance(offset, Tensor) and offset.ndim else offset + steps


def find_end(offset: int | Tensor, n: int) -> int | None:
    """One past the last position; None where the values of `offset` cannot be read, under a compiler."""
    if not isinstance(offset, Tensor):
        return offset + n
    if torch.compiler.is_compiling():
        return None
    return int(offset.max()) + n if offset.numel() else n


def check_count(layer: nn.Module, name: str, count: int) -> None:
    """Raise unless `count` is at least one."""
    if count < 1:
        raise RegardError(f"{type(layer).__name__} {name} must be at least 1, got {count}.")


def check_offset(layer: nn.Module, offset: int | Tensor, batch: int | None) -> None:
    """Raise unless `offset` is a position, or one for each sequence of the batch."""
    called = type(layer).__name__
    if not isinstance(offset, Tensor):
        if isinstance(offset, bool) or not isinstance(offset, int | torch.SymInt):
            raise RegardError(f"{called} offset must be an integer or a tensor of them, got {type(offset).__name__}.")
        if offset < 0:
            raise RegardError(f"{called} offset must be at least 0, got {offset}.")
        return
    if tuple(offset.shape) not in ((), (batch,)):
        wanted = "a number" if batch is None else f"a number or one for each sequence, (batch,)=({batch},)"
        raise RegardError(f"{called} offset must be {wanted}, got shape {tuple(offset.shape)}.")
    if problem := misfit_integers("offset", offset, offset.device, 0, None):
        raise RegardError(f"{called} {problem}")


def check_sequence(layer: nn.Module, rows: Tensor, num_hiddens: int) -> None:
    """Raise unless `rows` is (batch, positions, num_hiddens), in the dtype of the layer where it has one."""
    called = type(layer).__name__
    if not isinstance(rows, Tensor):
        raise RegardError(f"{called} X must be a tensor, got {type(rows).__name__}.")
    if rows.ndim != 3 or rows.shape[-1] != num_hiddens:
        raise RegardError(
            f"{called} X must be (batch, positions, num_hiddens={num_hiddens}), got shape {tuple(rows.shape)}."
        )
    if not rows.is_floating_point():
        have = str(rows.dtype).removeprefix("torch.")
        raise RegardError(
            f"{called} X must be floating point, got {have}: positions are added to embeddings, not tokens."
        )
    check_dtype(layer, rows, "X")
