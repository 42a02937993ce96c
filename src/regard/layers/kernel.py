"""Attention pooling by a Gaussian kernel, Nadaraya–Watson regression: https://d2l.ai/chapter_attention-mechanisms-and-transformers/attention-pooling.html."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.attention import Attention
from regard.layers.inputs import check_dtype
from regard.score import Gaussian


class KernelRegression(Attention):
    """Nadaraya–Watson regression with a learned width: the average of the values by softmax(−½((q − k)·w)²).

    >>> layer = KernelRegression()
    >>> _ = layer.w.data.fill_(2.0)
    >>> layer(torch.tensor([0.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 10.0])).detach()  # weights 1 : e⁻²
    tensor([1.1920])

    One number for each query. `keys` and `values` are both (keys,), shared by all queries, or both (queries, keys), a
    row for each query, as in the textbook, which leaves each query out of its own row. The larger the width, the
    sharper the kernel; its sign means nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(1))

    @property
    def attention_weights(self) -> Tensor | None:
        """The weights of the last call, (queries, keys), made when first read; None before the first call."""
        weights = super().attention_weights
        return weights if weights is None or weights.ndim == 2 else weights.squeeze(-2)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        self._check(queries, keys, values)
        key, value = keys.unsqueeze(-1), values.unsqueeze(-1)
        # shared keys are one sequence of n queries; own rows are n sequences of one query
        query = queries.unsqueeze(-1) if keys.ndim == 1 else queries[:, None, None]
        # autocast may hand in half precision; the width goes along
        out = self._attend(query, key, value, score=Gaussian(self.w.to(queries.dtype)))
        return out.reshape(-1)

    def _check(self, queries: Tensor, keys: Tensor, values: Tensor) -> None:
        for name, rows in (("queries", queries), ("keys", keys), ("values", values)):
            if not isinstance(rows, Tensor):
                raise RegardError(f"KernelRegression {name} must be a tensor, got {type(rows).__name__}.")
            check_dtype(self, rows, name)
        if queries.ndim != 1:
            raise RegardError(
                f"KernelRegression queries must be (queries,), got shape {tuple(queries.shape)}:"
                " points of several features are regard.models.NadarayaWatson's."
            )
        if keys.ndim not in (1, 2) or (keys.ndim == 2 and keys.shape[0] != queries.shape[0]):
            raise RegardError(
                f"KernelRegression keys must be (keys,), or (queries, keys) with queries={queries.shape[0]},"
                f" got shape {tuple(keys.shape)}."
            )
        if values.shape != keys.shape:
            raise RegardError(
                f"KernelRegression must have one value for each key: keys are {tuple(keys.shape)}, values"
                f" {tuple(values.shape)}."
            )
