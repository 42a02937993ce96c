"""What is compared: layers that make n tokens of width d of as many, with no bias, norm or residual around them.

A kind is one entry here: how its layer is built, and what the textbooks say of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.compare.settings import Dimensions, Settings
from regard.core import RegardError
from regard.core.names import import_plugin
from regard.layers import SelfAttention
from regard.layers.linear import apply_together
from regard.layers.spelling import check_kernel
from regard.mask import Window
from regard.plugins import find_plugins
from regard.score import Feature

Rows = Float[Tensor, "batch positions width"]
CELLS: dict[str, type[nn.RNN | nn.GRU]] = {"rnn": nn.RNN, "gru": nn.GRU}


class Convolution(nn.Module):
    """A 1-D convolution: each token from itself and its (kernel − 1)/2 neighbours on either side.

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


@dataclass(frozen=True)
class Kind:
    """A kind of layer, and its row of the textbooks' table.

    >>> KINDS["conv"].build(Dimensions(width=8, kernel=5))(torch.ones(1, 9, 8)).shape
    torch.Size([1, 9, 8])
    >>> KINDS["conv"].path(Dimensions(kernel=5), 9)
    4

    `mixing` counts the floating point operations of the textbooks (a multiply and an add are two), None where there is
    no formula; `projecting` those of attention's linear layers, which they leave out. `powers` are the exponents of n,
    d and k. `path` is how many layers, of a recurrence steps, it takes until the last of n tokens depends on the first,
    `path_text` that in letters. `textbook` is its row: operations, sequential steps, longest path. A layer that
    `is_recurrent` has `walk(rows)`, the state after each step.
    """

    name: str
    label: str
    build: Callable[[Dimensions], nn.Module]
    mixing: Callable[[Dimensions, int], int] | None
    powers: Mapping[str, int]
    path: Callable[[Dimensions, int], int]
    textbook: tuple[str, str, str]
    path_text: str = "formula"
    projecting: Callable[[Dimensions, int], int] = lambda dims, n: 0
    is_recurrent: bool = False
    has_heads: bool = False


def _count_layers(radius: int, n: int) -> int:
    """Layers until the last of n tokens has seen the first, where each layer sees `radius` further."""
    return max(-(-(n - 1) // radius), 1)


ATTENTION = Kind(
    name="attention", label="self-attention", has_heads=True,
    powers={"n": 2, "d": 1}, path_text="1", textbook=("n²·d", "1", "1"),
    build=lambda dims: SelfAttention(dims.width, dims.heads),
    mixing=lambda dims, n: 4 * n * n * dims.width,
    # queries, keys, values and the way out
    projecting=lambda dims, n: 8 * n * dims.width**2,
    path=lambda dims, n: 1,
)  # fmt: skip
WINDOWED = replace(
    ATTENTION, name="windowed", label="windowed attention",
    powers={"n": 1, "d": 1}, path_text="⌈(n−1)/⌊w/2⌋⌉", textbook=("w·n·d", "1", "n/w"),
    build=lambda dims: WindowedAttention(dims.width, dims.heads, dims.window),
    mixing=None,
    path=lambda dims, n: _count_layers(dims.window // 2, n),
)  # fmt: skip
LINEAR = replace(
    ATTENTION, name="linear", label="linear attention",
    powers={"n": 1, "d": 2}, textbook=("n·d²", "1", "1"),
    build=lambda dims: LinearAttention(dims.width, dims.heads),
    mixing=lambda dims, n: 4 * n * dims.width**2 // dims.heads,
)  # fmt: skip
CONV = Kind(
    name="conv", label="convolution",
    powers={"n": 1, "d": 2, "k": 1}, path_text="⌈2(n−1)/(k−1)⌉", textbook=("k·n·d²", "1", "n/k"),
    build=lambda dims: Convolution(dims.width, dims.kernel),
    mixing=lambda dims, n: 2 * dims.kernel * n * dims.width**2,
    path=lambda dims, n: _count_layers(dims.kernel // 2, n),
)  # fmt: skip
RNN = Kind(
    name="rnn", label="plain RNN", is_recurrent=True,
    powers={"n": 1, "d": 2}, path_text="n", textbook=("n·d²", "n", "n"),
    build=lambda dims: Recurrence(dims.width, "rnn"),
    mixing=lambda dims, n: 4 * n * dims.width**2,
    path=lambda dims, n: n,
)  # fmt: skip
GRU = replace(
    RNN, name="gru", label="GRU",
    build=lambda dims: Recurrence(dims.width, "gru"),
    mixing=lambda dims, n: 12 * n * dims.width**2,
)  # fmt: skip


def load_kinds() -> dict[str, Kind]:
    """Those of other installed packages (entry points `regard.kinds`)."""

    def fits(name: str, kind: Any) -> bool:
        return isinstance(kind, Kind) and kind.name == name

    must, found = "must be a Kind of that name", find_plugins("kinds")
    return {name: import_plugin("kinds", name, reference, must, fits) for name, reference in found.items()}


KINDS: dict[str, Kind] = {kind.name: kind for kind in (CONV, RNN, GRU, ATTENTION, WINDOWED, LINEAR)} | load_kinds()


def count_parameters(kind: Kind, dims: Dimensions) -> int:
    """How many numbers the layer learns.

    >>> {name: count_parameters(kind, Dimensions(width=8)) // 8**2 for name, kind in KINDS.items()}
    {'conv': 3, 'rnn': 2, 'gru': 6, 'attention': 4, 'windowed': 4, 'linear': 4}
    """
    return count_weights(lambda: kind.build(dims))


def count_weights(build: Callable[[], nn.Module]) -> int:
    """How many numbers a model learns that is built on no device: nothing is drawn for weights that only count."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in build().parameters())


def match_width(kind: Kind, dims: Dimensions, wanted: int) -> Dimensions:
    """The same but for the width, which is that of the layer with about `wanted` parameters.

    >>> match_width(KINDS["gru"], Dimensions(width=64), 4 * 64**2).width
    52
    """
    if wanted < 1:
        raise RegardError(f"match_width wanted must be at least 1, got {wanted}.")
    # all of them grow with the square of the width; heads share it evenly, and positions take it in pairs
    step = dims.heads if kind.has_heads else 2
    guess = dims.width * (wanted / count_parameters(kind, dims)) ** 0.5
    return replace(dims, width=max(round(guess / step), 1) * step)


def match_attention(kind: Kind, dims: Dimensions, settings: Settings) -> Dimensions:
    """The sizes at which a kind is set beside self-attention of these: the same, or those of as many parameters."""
    return match_width(kind, dims, count_parameters(ATTENTION, dims)) if settings.has_equal_parameters else dims
