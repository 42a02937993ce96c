"""Word vectors from characters by a CNN: https://arxiv.org/abs/1508.06615."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.layers.inputs import check_rate
from regard.layers.positional import check_count
from regard.mask.integer import misfit_integers


class Spelling(nn.Module):
    """A vector for each word from its characters: convolutions, max pooling and a linear layer.

    >>> layer = Spelling(num_characters=30, num_hiddens=8)
    >>> layer(torch.tensor([[[3, 1, 20], [7, 0, 0], [0, 0, 0]]])).shape
    torch.Size([1, 3, 8])

    Letters are ids below `num_characters`, 0 is padding, which changes nothing wherever it stands at the end of a word.
    A word of no letters is zeros. Each of `kernel_sizes`, odd numbers, has `num_filters` filters, half of
    num_hiddens by default; letters are embedded in `embed_size` numbers.
    """

    def __init__(
        self,
        num_characters: int,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        embed_size: int = 32,
        kernel_sizes: Sequence[int] = (3, 5),
        num_filters: int | None = None,
    ) -> None:
        super().__init__()
        num_filters = -(-num_hiddens // 2) if num_filters is None else num_filters
        sizes = {"num_characters": num_characters, "num_hiddens": num_hiddens, "embed_size": embed_size}
        for name, size in {**sizes, "num_filters": num_filters}.items():
            check_count(self, name, size)
        check_rate(self, dropout)
        if not kernel_sizes:
            raise RegardError(f"Spelling kernel_sizes must name at least one, got {kernel_sizes}.")
        for size in kernel_sizes:
            check_kernel(self, size)
        self.num_characters, self.num_hiddens = num_characters, num_hiddens
        self.embedding = nn.Embedding(num_characters, embed_size, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(embed_size, num_filters, k, padding=k // 2) for k in kernel_sizes)
        self.dense = nn.Linear(num_filters * len(kernel_sizes), num_hiddens)
        self.dropout = nn.Dropout(dropout)
        for module in (*self.convs, self.dense):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

    def forward(self, letters: Int[Tensor, "batch words letters"]) -> Float[Tensor, "batch words num_hiddens"]:
        check_letters(self, letters, self.num_characters - 1)
        batch, n, length = letters.shape
        # nothing to convolve
        if 0 in letters.shape:
            return self.dense.weight.new_zeros(batch, n, self.num_hiddens)
        is_letter = (letters > 0).view(-1, 1, length)
        rows = self.embedding(letters.reshape(-1, length)).mT.masked_fill(~is_letter, 0)
        rows = self.dropout(rows)
        # where a filter finds nothing it says zero, and so does one that only saw padding
        found = [functional.relu(conv(rows)).masked_fill(~is_letter, 0).amax(-1) for conv in self.convs]
        out: Tensor = self.dense(torch.cat(found, -1)).masked_fill(~is_letter.any(-1), 0)
        return out.view(batch, n, self.num_hiddens)

    def extra_repr(self) -> str:
        return f"num_characters={self.num_characters}, num_hiddens={self.num_hiddens}"


def check_letters(layer: nn.Module, letters: Tensor, last: int | None) -> None:
    """Raise unless these are ids of letters, (batch, words, letters), up to `last`."""
    called = type(layer).__name__
    if not isinstance(letters, Tensor) or letters.ndim != 3 or letters.dtype not in (torch.int64, torch.int32):
        kind = str(getattr(letters, "dtype", "")).removeprefix("torch.")
        found = f"{kind} of shape {tuple(letters.shape)}" if kind else type(letters).__name__
        raise RegardError(f"{called} letters must be int64 or int32 (batch, words, letters), got {found}.")
    is_seen = letters.device.type == "cpu" and not torch.compiler.is_compiling()
    low, high = (0, last) if is_seen else (None, None)
    if problem := misfit_integers("letters", letters, letters.device, low, high, "the last of the characters"):
        raise RegardError(f"{called} {problem}")


def check_kernel(layer: nn.Module, size: int) -> None:
    """Raise unless a kernel's size is odd."""
    if size < 1 or size % 2 == 0:
        raise RegardError(f"{type(layer).__name__} kernel_size must be odd and at least 1, got {size}.")
