"""Attention pooling, a sequence as one vector: https://aclanthology.org/N16-1174."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import RegardError
from regard.engine import attend
from regard.layers.attention import Attention
from regard.layers.inputs import check_rate, check_rows, join_dtypes
from regard.layers.padding import clear_padding, find_valid
from regard.layers.positional import check_count
from regard.mask import Allowed, Full
from regard.weigh import Hard, Softmax

WAYS = ("soft", "hard")


class AttentionPooling(Attention):
    """Attention pooling, (batch, n, d) to (batch, d), by one learned query over keys tanh(W_k·x).

    >>> layer = AttentionPooling(num_hiddens=8)
    >>> layer(torch.ones(2, 5, 8), torch.tensor([2, 5])).shape
    torch.Size([2, 8])
    >>> layer.attention_weights
    tensor([[[0.5000, 0.5000, 0.0000, 0.0000, 0.0000]],
    <BLANKLINE>
            [[0.2000, 0.2000, 0.2000, 0.2000, 0.2000]]])

    `how="hard"` takes one position: in training one drawn by the soft weights, whose gradient it has
    (straight-through), in evaluation the best. `mask` (batch, positions) has True for a token. A sequence of no tokens
    gives zeros.
    """

    def __init__(self, num_hiddens: int, how: str = "soft", dropout: float = 0.0) -> None:
        super().__init__()
        check_count(self, "num_hiddens", num_hiddens)
        check_rate(self, dropout)
        if how not in WAYS:
            raise RegardError(f"AttentionPooling how must be 'soft' or 'hard', got {how!r}.")
        self.num_hiddens, self.how, self.dropout = num_hiddens, how, dropout
        self.query = nn.Parameter(torch.randn(num_hiddens))
        self.W_k = nn.Linear(num_hiddens, num_hiddens)
        nn.init.xavier_uniform_(self.W_k.weight)
        nn.init.zeros_(self.W_k.bias)

    def forward(
        self,
        X: Float[Tensor, "batch positions num_hiddens"],
        valid_lens: Tensor | None = None,
        *,
        mask: Tensor | None = None,
    ) -> Float[Tensor, "batch num_hiddens"]:
        check_rows(self, X, "X", "num_hiddens", self.num_hiddens)
        valid = find_valid(self, X, valid_lens, mask)
        # what is hidden in padding would reach the gradient of W_k
        X = clear_padding(X, valid)
        query = self.query.expand(len(X), 1, -1)
        query, key, value = join_dtypes(query, torch.tanh(self.W_k(X)), X)
        seen = Full() if valid is None else Allowed(valid[:, None])
        if self.how == "soft":
            return self._attend(query, key, value, weigh=Softmax(), mask=seen, dropout=self.dropout)[:, 0]
        weigh = Hard("sample" if self.training else "argmax")
        out = self._attend(query, key, value, weigh=weigh, mask=seen)[:, 0]
        if self.training and torch.is_grad_enabled():
            soft = attend(query, key, value, mask=seen)[:, 0]
            # in this order the output is the drawn row to the last bit
            out = out.detach() + (soft - soft.detach())
        return nn.functional.dropout(out.new_ones(len(out), 1), self.dropout, self.training) * out

    def extra_repr(self) -> str:
        return f"num_hiddens={self.num_hiddens}, how={self.how!r}, dropout={self.dropout}"


def reduce_rows(
    X: Float[Tensor, "batch positions num_hiddens"], valid: Tensor | None, how: str
) -> Float[Tensor, "batch num_hiddens"]:
    """The "mean", the "max" or the "first" of the rows where `valid` (batch, positions) holds; of none, zeros.

    >>> reduce_rows(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]), "mean")
    tensor([[2.]])
    """
    if valid is None:
        valid = X.new_ones(X.shape[:2], dtype=torch.bool)
    rows = clear_padding(X, valid)
    if how == "mean" or not X.shape[1]:
        return rows.sum(1) / valid.sum(1, keepdim=True).clamp(min=1)
    if how == "first":
        return rows[torch.arange(len(rows), device=rows.device), valid.int().argmax(1)]
    most = rows.masked_fill(~valid[..., None], -torch.inf).amax(1)
    return most.masked_fill(~valid.any(1, keepdim=True), 0)
