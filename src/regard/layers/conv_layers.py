"""A stack of convolutions over sequences of different lengths: https://arxiv.org/abs/1408.5882."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.blocks import ACTIVATIONS, AddNorm
from regard.layers.inputs import check_rows
from regard.layers.padding import clear_padding, find_valid
from regard.layers.positional import check_count
from regard.layers.spelling import check_kernel


class ConvLayers(nn.Module):
    """Convolutions over neighbouring positions, each with an activation, a residual connection and a norm.

    >>> import torch
    >>> ConvLayers(num_hiddens=8, num_layers=2)(torch.ones(2, 5, 8), torch.tensor([2, 5])).shape
    torch.Size([2, 5, 8])

    Past a sequence's length, as before its start, each convolution finds zeros; so are these rows of the result. After
    L layers a position has seen L·(kernel_size − 1)/2 neighbours on each side.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        *,
        kernel_size: int = 3,
        activation: str = "relu",
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        check_count(self, "num_hiddens", num_hiddens)
        check_count(self, "num_layers", num_layers)
        check_kernel(self, kernel_size)
        if activation not in ACTIVATIONS:
            names = ", ".join(map(repr, ACTIVATIONS))
            raise RegardError(f"ConvLayers activation must be one of {names}, got {activation!r}.")
        self.num_hiddens, self.activation = num_hiddens, activation
        pairs = range(num_layers)
        self.convs = nn.ModuleList(
            nn.Conv1d(num_hiddens, num_hiddens, kernel_size, padding=kernel_size // 2) for _ in pairs
        )
        self.addnorms = nn.ModuleList(AddNorm(num_hiddens, dropout, norm_first=norm_first) for _ in pairs)

    def forward(
        self, X: Float[Tensor, "batch positions num_hiddens"], valid_lens: Tensor | None = None
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        check_rows(self, X, "X", "num_hiddens", self.num_hiddens)
        valid = find_valid(self, X, valid_lens)
        if 0 in X.shape:
            return X
        act, X = ACTIVATIONS[self.activation], clear_padding(X, valid)
        for conv, addnorm in zip(self.convs, self.addnorms, strict=True):
            X = addnorm(X, lambda x, conv=conv: act(conv(clear_padding(x, valid).mT)).mT)
        return clear_padding(X, valid)
