"""Attention by one score: https://d2l.ai/chapter_attention-mechanisms-and-transformers/attention-scoring-functions.html."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import RegardError, Score, Weigh
from regard.engine.check import as_weigh
from regard.layers.attention import Attention
from regard.layers.inputs import as_lengths, check_call, check_lengths, check_rate, join_dtypes
from regard.score import Additive, Bilinear, Concat, Cosine, Dot
from regard.score.additive import ACTIVATIONS, name_activations
from regard.weigh import Softmax


def masked_softmax(
    scores: Float[Tensor, "batch queries keys"], valid_lens: Tensor | None = None
) -> Float[Tensor, "batch queries keys"]:
    """Softmax over the valid keys; those past them get zero.

    >>> masked_softmax(torch.zeros(2, 1, 3), torch.tensor([1, 2]))
    tensor([[[1.0000, 0.0000, 0.0000]],
    <BLANKLINE>
            [[0.5000, 0.5000, 0.0000]]])

    `valid_lens` is one length for each sequence or one for each query. A row with no valid key is all zeros.
    """
    if not isinstance(scores, Tensor) or scores.ndim != 3:
        found = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        raise RegardError(f"masked_softmax scores must be (batch, queries, keys), got {found}.")
    if valid_lens is None:
        return torch.softmax(scores, -1)
    check_lengths("masked_softmax", valid_lens, scores.shape, scores.device)
    each = valid_lens[:, None, None] if valid_lens.ndim == 1 else valid_lens[:, :, None]
    allowed = torch.arange(scores.shape[2], device=scores.device) < each
    return Softmax()(scores, allowed.expand(scores.shape))


class ScoredAttention(Attention):
    """The base class of attention layers of one score: a subclass projects queries and keys and says which score."""

    def __init__(self, query_size: int | None, key_size: int | None, dropout: float, weigh: Weigh = Softmax()) -> None:
        super().__init__()
        check_rate(self, dropout)
        self.query_size, self.key_size = query_size, key_size
        self.dropout, self.weigh = dropout, as_weigh(weigh)

    def compare(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
        """Projected queries and keys, and their score."""
        raise NotImplementedError

    def forward(
        self,
        queries: Float[Tensor, "batch queries query_size"],
        keys: Float[Tensor, "batch keys key_size"],
        values: Float[Tensor, "batch keys value_size"],
        valid_lens: Tensor | None = None,
    ) -> Float[Tensor, "batch queries value_size"]:
        check_call(self, queries, keys, values, self.query_size, self.key_size)
        mask = as_lengths(self, valid_lens, queries, keys.shape[1])
        query, key, score = self.compare(queries, keys)
        query, key, values = join_dtypes(query, key, values)
        return self._attend(query, key, values, score=score, weigh=self.weigh, mask=mask, dropout=self.dropout)

    def extra_repr(self) -> str:
        shown = {"dropout": self.dropout, "weigh": self.weigh}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


class AdditiveAttention(ScoredAttention):
    """Additive attention, w_v·tanh(W_q·q + W_k·k), for queries and keys of any widths.

    >>> layer = AdditiveAttention(key_size=2, query_size=20, num_hiddens=8)
    >>> layer(torch.zeros(2, 1, 20), torch.ones(2, 10, 2), torch.ones(2, 10, 4), torch.tensor([2, 6])).shape
    torch.Size([2, 1, 4])
    >>> layer.attention_weights.shape
    torch.Size([2, 1, 10])
    """

    def __init__(
        self, key_size: int, query_size: int, num_hiddens: int, dropout: float = 0.0, *, weigh: Weigh = Softmax()
    ) -> None:
        super().__init__(query_size, key_size, dropout, weigh)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def compare(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
        query, key = self.W_q(queries), self.W_k(keys)
        # autocast makes them half precision; the score's own weight goes along
        return query, key, Additive(self.w_v.weight[0].to(query.dtype))


class DotProductAttention(ScoredAttention):
    """Scaled dot-product attention, q·k/√d, for queries and keys of one width.

    >>> layer = DotProductAttention()
    >>> layer(torch.zeros(2, 1, 2), torch.ones(2, 10, 2), torch.ones(2, 10, 4), torch.tensor([2, 6])).shape
    torch.Size([2, 1, 4])
    """

    def __init__(self, dropout: float = 0.0, *, weigh: Weigh = Softmax()) -> None:
        super().__init__(None, None, dropout, weigh)

    def compare(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
        _check_widths(self, queries, keys)
        return queries, keys, Dot()


class BilinearAttention(ScoredAttention):
    """Bilinear attention, q·W·k: Luong's "general" score, for queries and keys of any widths.

    >>> layer = BilinearAttention(key_size=2, query_size=20)
    >>> layer(torch.zeros(2, 1, 20), torch.ones(2, 10, 2), torch.ones(2, 10, 4)).shape
    torch.Size([2, 1, 4])
    """

    def __init__(self, key_size: int, query_size: int, dropout: float = 0.0, *, weigh: Weigh = Softmax()) -> None:
        super().__init__(query_size, key_size, dropout, weigh)
        self.W = nn.Parameter(nn.init.xavier_uniform_(torch.empty(query_size, key_size)))

    def compare(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
        return queries, keys, Bilinear(self.W.to(queries.dtype))


class CosineAttention(ScoredAttention):
    """Cosine-similarity attention; the cosine is multiplied by `scale`, which `learns_scale` makes a parameter.

    >>> layer = CosineAttention(scale=10.0)
    >>> layer(torch.ones(2, 1, 2), torch.ones(2, 10, 2), torch.ones(2, 10, 4)).shape
    torch.Size([2, 1, 4])
    """

    def __init__(
        self, dropout: float = 0.0, *, scale: float = 1.0, learns_scale: bool = False, weigh: Weigh = Softmax()
    ) -> None:
        super().__init__(None, None, dropout, weigh)
        self.scale: float | nn.Parameter = nn.Parameter(torch.tensor(float(scale))) if learns_scale else float(scale)

    def compare(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
        _check_widths(self, queries, keys)
        return queries, keys, Cosine(self.scale)


class ConcatAttention(ScoredAttention):
    """Attention by act(w_q·q + w_k·k), the score of graph attention: two vectors end to end, one activation.

    >>> layer = ConcatAttention(key_size=2, query_size=20)
    >>> layer(torch.zeros(2, 1, 20), torch.ones(2, 10, 2), torch.ones(2, 10, 4)).shape
    torch.Size([2, 1, 4])
    """

    def __init__(
        self,
        key_size: int,
        query_size: int,
        dropout: float = 0.0,
        *,
        activation: str = "leaky_relu",
        weigh: Weigh = Softmax(),
    ) -> None:
        super().__init__(query_size, key_size, dropout, weigh)
        if activation not in ACTIVATIONS:
            raise RegardError(f"ConcatAttention activation must be one of {name_activations()}, got {activation!r}.")
        self.activation = activation
        self.w_q = nn.Linear(query_size, 1, bias=False)
        self.w_k = nn.Linear(key_size, 1, bias=False)

    def compare(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
        query_weight, key_weight = (x.weight[0].to(queries.dtype) for x in (self.w_q, self.w_k))
        return queries, keys, Concat(query_weight, key_weight, self.activation)


class LearnedAttention(ScoredAttention):
    """Attention by any score, given by name or class, for queries and keys of one width; the layer learns its tensors.

    >>> layer = LearnedAttention("gaussian", 2)
    >>> layer(torch.zeros(2, 1, 2), torch.ones(2, 10, 2), torch.ones(2, 10, 4)).shape
    torch.Size([2, 1, 4])
    """

    def __init__(self, score: str | type[Score], size: int, dropout: float = 0.0, *, weigh: Weigh = Softmax()) -> None:
        super().__init__(size, size, dropout, weigh)
        self.score = self._learn(score, 1, size)

    def compare(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
        return queries, keys, self._make_score(queries.dtype)


def build_scored(score: str, size: int, dropout: float) -> ScoredAttention:
    """The layer of the score of that name, for queries and keys of one width: the textbook's, where it has one."""
    if score == "additive":
        return AdditiveAttention(size, size, size, dropout)
    if score == "bilinear":
        return BilinearAttention(size, size, dropout)
    if score == "cosine":
        # it lies in [-1, 1], and needs a scale to choose at all
        return CosineAttention(dropout, scale=10.0, learns_scale=True)
    return ConcatAttention(size, size, dropout) if score == "concat" else LearnedAttention(score, size, dropout)


def _check_widths(layer: nn.Module, queries: Tensor, keys: Tensor) -> None:
    if queries.shape[-1] != keys.shape[-1]:
        raise RegardError(
            f"{type(layer).__name__} queries and keys must be equally wide: got {queries.shape[-1]} and"
            f" {keys.shape[-1]}; AdditiveAttention and BilinearAttention take any widths."
        )
