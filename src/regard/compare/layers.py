"""The layers that are compared: n tokens of width d become n of width d, with no bias, norm or residual around it."""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers import SelfAttention
from regard.layers.linear import apply_together
from regard.layers.spelling import check_kernel
from regard.mask import Window
from regard.score import Feature

Rows = Float[Tensor, "batch positions width"]
CELLS: dict[str, type[nn.RNN | nn.GRU]] = {"rnn": nn.RNN, "gru": nn.GRU}


class Convolution(nn.Module):
    """A 1-D convolution: each token from itself and its (kernel − 1)/2 neighbours on either side.

    >>> import torch
    >>> Convolution(width=8, kernel=3)(torch.ones(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        check_kernel(self, kernel)
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, bias=False)

    def forward(self, rows: Rows) -> Rows:
        out: Tensor = self.conv(rows.mT).mT
        return out


class Recurrence(nn.Module):
    """A recurrence from left to right, by a plain RNN (tanh) or a GRU; the output of each token is the state after it.

    >>> import torch
    >>> layer = Recurrence(width=8, cell="gru")
    >>> layer(torch.ones(2, 5, 8)).allclose(torch.stack(list(layer.walk(torch.ones(2, 5, 8))), 1), atol=1e-6)
    True
    """

    def __init__(self, width: int, cell: str) -> None:
        super().__init__()
        if cell not in CELLS:
            raise RegardError(f"Recurrence cell must be one of {', '.join(map(repr, CELLS))}, got {cell!r}.")
        self.rnn = CELLS[cell](width, width, batch_first=True, bias=False)

    def forward(self, rows: Rows) -> Rows:
        out, _ = self.rnn(rows)
        return out  # type: ignore[no-any-return]

    def walk(self, rows: Rows) -> Iterator[Float[Tensor, "batch width"]]:
        """The state after each step, one token at a time."""
        state: Tensor | None = None
        for token in rows.split(1, 1):
            out, state = self.rnn(token, state)
            yield out[:, 0]


class WindowedAttention(nn.Module):
    """Self-attention in which a token regards `window // 2` neighbours on either side and itself.

    >>> import torch
    >>> WindowedAttention(width=8, heads=2, window=4)(torch.ones(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        if window < 2:
            raise RegardError(f"WindowedAttention window must be at least 2, got {window}.")
        self.attention = SelfAttention(width, heads)
        self.mask = Window(window // 2, window // 2)

    def forward(self, rows: Rows) -> Rows:
        out: Tensor = self.attention(rows, mask=self.mask)
        return out


class LinearAttention(nn.Module):
    """Self-attention by features, φ(Q)·(φ(K)ᵀV) over φ(Q)·Σφ(K): no pair of tokens is ever met one by one.

    >>> import torch
    >>> LinearAttention(width=8, heads=2)(torch.ones(2, 5, 8)).shape
    torch.Size([2, 5, 8])

    The same numbers as `attend` with the score `Feature()` and the weigher `Sum()`, which meets all pairs.
    https://arxiv.org/abs/2006.16236
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise RegardError(f"LinearAttention width={width} must be a multiple of heads={heads}.")
        self.heads = heads
        self.score = Feature()
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, rows: Rows) -> Rows:
        made = apply_together((self.W_q, self.W_k, self.W_v), rows)
        query, key, value = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in made)
        query, key = self.score.features(query), self.score.features(key)
        total = (query * key.sum(-2, keepdim=True)).sum(-1, keepdim=True)
        out = query @ (key.mT @ value) / total
        mixed: Tensor = self.W_o(out.transpose(1, 2).flatten(2))
        return mixed
