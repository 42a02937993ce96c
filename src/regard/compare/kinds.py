"""What is compared, and what the textbooks say of it. A new kind is one more entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from regard.compare.layers import Convolution, LinearAttention, Recurrence, WindowedAttention
from regard.core import RegardError
from regard.layers import SelfAttention


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a layer: d, k, and what attention has beside them."""

    width: int = 64
    kernel: int = 3
    heads: int = 4
    window: int = 32


@dataclass(frozen=True)
class Kind:
    """A kind of layer, and its row of the textbooks' table.

    >>> KINDS["conv"].build(Dimensions(width=8, kernel=5))(torch.ones(1, 9, 8)).shape
    torch.Size([1, 9, 8])
    >>> KINDS["conv"].path(Dimensions(kernel=5), 9)
    4

    `mixing` counts the floating point operations that the textbooks count (a multiply and an add are two): of attention
    the products in which tokens meet, of a convolution or a recurrence all; `projecting` those of attention's linear
    layers, which they leave out. None: more than the mask needs, by how it is cut into tiles. `powers` are the
    textbooks' exponents of n, d and k. `path` is how many layers, of a recurrence steps, it takes until the last of n
    tokens depends on the first, `path_text` that in letters. `textbook` is its row: operations, sequential steps,
    longest path. A layer that `is_recurrent` has `walk(rows)`, the state after each step. In a report, a kind that is
    not in `KINDS` goes by its `name`.
    """

    name: str
    label: str
    build: Callable[[Dimensions], nn.Module]
    mixing: Callable[[Dimensions, int], int] | None
    projecting: Callable[[Dimensions, int], int]
    powers: Mapping[str, int]
    path: Callable[[Dimensions, int], int]
    textbook: tuple[str, str, str]
    path_text: str = "formula"
    is_recurrent: bool = False
    has_heads: bool = False


def _reach(radius: int, n: int) -> int:
    """Layers until the last of n tokens has seen the first, where each layer sees `radius` further."""
    return max(-(-(n - 1) // radius), 1)


def _project(dims: Dimensions, n: int) -> int:
    """Queries, keys, values and the way out."""
    return 8 * n * dims.width**2


ATTENTION = Kind(
    name="attention",
    label="self-attention",
    build=lambda dims: SelfAttention(dims.width, dims.heads),
    mixing=lambda dims, n: 4 * n * n * dims.width,
    projecting=_project,
    powers={"n": 2, "d": 1},
    path=lambda dims, n: 1,
    textbook=("n²·d", "1", "1"),
    path_text="1",
    has_heads=True,
)
WINDOWED = Kind(
    name="windowed",
    label="windowed attention",
    build=lambda dims: WindowedAttention(dims.width, dims.heads, dims.window),
    mixing=None,
    projecting=_project,
    powers={"n": 1, "d": 1},
    path=lambda dims, n: _reach(dims.window // 2, n),
    textbook=("w·n·d", "1", "n/w"),
    path_text="⌈(n−1)/⌊w/2⌋⌉",
    has_heads=True,
)
LINEAR = Kind(
    name="linear",
    label="linear attention",
    build=lambda dims: LinearAttention(dims.width, dims.heads),
    mixing=lambda dims, n: 4 * n * dims.width**2 // dims.heads,
    projecting=_project,
    powers={"n": 1, "d": 2},
    path=lambda dims, n: 1,
    textbook=("n·d²", "1", "1"),
    path_text="1",
    has_heads=True,
)
CONV = Kind(
    name="conv",
    label="convolution",
    build=lambda dims: Convolution(dims.width, dims.kernel),
    mixing=lambda dims, n: 2 * dims.kernel * n * dims.width**2,
    projecting=lambda dims, n: 0,
    powers={"n": 1, "d": 2, "k": 1},
    path=lambda dims, n: _reach(dims.kernel // 2, n),
    textbook=("k·n·d²", "1", "n/k"),
    path_text="⌈2(n−1)/(k−1)⌉",
)
RNN = Kind(
    name="rnn",
    label="plain RNN",
    build=lambda dims: Recurrence(dims.width, "rnn"),
    mixing=lambda dims, n: 4 * n * dims.width**2,
    projecting=lambda dims, n: 0,
    powers={"n": 1, "d": 2},
    path=lambda dims, n: n,
    textbook=("n·d²", "n", "n"),
    path_text="n",
    is_recurrent=True,
)
GRU = replace(
    RNN,
    name="gru",
    label="GRU",
    build=lambda dims: Recurrence(dims.width, "gru"),
    mixing=lambda dims, n: 12 * n * dims.width**2,
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in (CONV, RNN, GRU, ATTENTION, WINDOWED, LINEAR)}


def count_parameters(kind: Kind, dims: Dimensions) -> int:
    """How many numbers the layer learns.

    >>> {name: count_parameters(kind, Dimensions(width=8)) // 8**2 for name, kind in KINDS.items()}
    {'conv': 3, 'rnn': 2, 'gru': 6, 'attention': 4, 'windowed': 4, 'linear': 4}
    """
    # on no device: nothing is drawn for weights that only count
    with torch.device("meta"):
        return sum(weight.numel() for weight in kind.build(dims).parameters())


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
    width = max(round(guess / step), 1) * step
    return replace(dims, width=width)
