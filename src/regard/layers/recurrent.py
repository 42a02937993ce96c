"""A GRU over sequences of different lengths: https://arxiv.org/abs/1406.1078."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.core import RegardError
from regard.layers.inputs import check_rate, check_rows
from regard.layers.padding import clear_padding, find_valid
from regard.layers.positional import check_count


class GRULayers(nn.Module):
    """Layers of gated recurrent units (GRU) that never read past a sequence's length.

    >>> import torch
    >>> GRULayers(num_hiddens=8, num_layers=2)(torch.ones(2, 5, 8), torch.tensor([2, 5])).shape
    torch.Size([2, 5, 8])

    With `is_bidirectional` each direction has half of the hidden units. `dropout` lies between layers. Rows past
    `valid_lens` are zeros. On a GPU a call waits for the lengths.
    """

    def __init__(
        self, num_hiddens: int, num_layers: int = 1, dropout: float = 0.0, *, is_bidirectional: bool = True
    ) -> None:
        super().__init__()
        check_count(self, "num_hiddens", num_hiddens)
        check_count(self, "num_layers", num_layers)
        check_rate(self, dropout)
        if is_bidirectional and num_hiddens % 2:
            raise RegardError(f"GRULayers num_hiddens must be even where is_bidirectional, got {num_hiddens}.")
        self.num_hiddens = num_hiddens
        width = num_hiddens // 2 if is_bidirectional else num_hiddens
        # torch warns of a rate between layers where there is but one
        rate = dropout if num_layers > 1 else 0.0
        self.rnn = nn.GRU(
            num_hiddens, width, num_layers, batch_first=True, dropout=rate, bidirectional=is_bidirectional
        )

    def forward(
        self, X: Float[Tensor, "batch positions num_hiddens"], valid_lens: Tensor | None = None
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        check_rows(self, X, "X", "num_hiddens", self.num_hiddens)
        valid = find_valid(self, X, valid_lens)
        out: Tensor
        if 0 in X.shape:
            return X
        if valid_lens is None:
            out, _ = self.rnn(X)
            return out
        # torch packs no empty sequence: it takes a step over zeros, which is taken back
        rows, lengths = clear_padding(X, valid), valid_lens.cpu().clamp(min=1)
        packed, _ = self.rnn(pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False))
        out, _ = pad_packed_sequence(packed, batch_first=True, total_length=X.shape[1])
        return clear_padding(out, valid)
