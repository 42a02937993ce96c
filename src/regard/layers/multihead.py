"""Multi-head attention: https://d2l.ai/chapter_attention-mechanisms-and-transformers/multihead-attention.html."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Bias, Mask, RegardError, Score, Weigh
from regard.engine.check import as_mask, as_score, as_weigh
from regard.engine.weights import make_weights
from regard.layers.attention import Attention
from regard.layers.cache import Cache
from regard.layers.inputs import as_lengths, change_rows, check_rate, check_rows, check_together
from regard.layers.linear import multiply_together
from regard.layers.torch_call import TorchCall
from regard.layers.torch_parity import check_one_width, check_torch, make_torch, take_weights
from regard.mask import Full
from regard.mask.integer import recall_range
from regard.weigh import Softmax

Scoring = Score | Callable[[Tensor, Tensor], Tensor]


class MultiHeadAttention(Attention):
    """Multi-head attention: `num_heads` learned projections attend in parallel; W_o projects them, concatenated.

    >>> layer = MultiHeadAttention(100, 100, 100, num_hiddens=100, num_heads=5, dropout=0.5).eval()
    >>> queries, keys = torch.ones(2, 4, 100), torch.ones(2, 6, 100)
    >>> layer(queries, keys, keys, valid_lens=torch.tensor([3, 2])).shape
    torch.Size([2, 4, 100])
    >>> layer.attention_weights.shape
    torch.Size([2, 5, 4, 6])

    `num_key_heads` below `num_heads` lets each key and value head serve a group of query heads; `bias` gives the four
    linear layers one each.

    `score` is a term, a function of two tiles (a module's parameters become the layer's), or by name or class one whose
    tensors the layer learns for each head, initialised by the score's `start`: the `score_weight` of "additive"
    and of "bilinear", the `score_scale` of "cosine" and so on; `regard.score.SCORES` has the names. None is "dot". A
    term's own tensors stay the caller's: the layer does not move or save them.

    `position(x, offset=…)` is applied to projected queries and keys, (batch, heads, n, width); the first stands
    at `offset`, and the last query stands at the last key, as masks have it.
    """

    def __init__(
        self,
        key_size: int,
        query_size: int,
        value_size: int,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        num_key_heads: int | None = None,
        score: str | type[Score] | Scoring | None = None,
        weigh: Weigh = Softmax(),
        position: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        check_rate(self, dropout)
        num_key_heads = num_heads if num_key_heads is None else num_key_heads
        _check_heads(self, num_hiddens, num_heads, num_key_heads)
        self.key_size, self.query_size, self.value_size = key_size, query_size, value_size
        self.num_hiddens, self.num_heads, self.num_key_heads = num_hiddens, num_heads, num_key_heads
        self.head_width = num_hiddens // num_heads
        self.dropout, self.weigh, self.position = dropout, as_weigh(weigh), position
        # False only in what `from_torch` makes of a module that has positions first
        self.batch_first = True
        self.W_q = nn.Linear(query_size, num_hiddens, bias=bias)
        self.W_k = nn.Linear(key_size, num_key_heads * self.head_width, bias=bias)
        self.W_v = nn.Linear(value_size, num_key_heads * self.head_width, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.score: str | Scoring
        score = "dot" if score is None else score
        if isinstance(score, str) or (isinstance(score, type) and issubclass(score, Score)):
            self.score = self._learn(score, num_heads, self.head_width, "a term, a function or ")
        else:
            # which complains of other classes
            self.score = score if isinstance(score, nn.Module) else as_score(score)  # type: ignore[arg-type]

    def forward(
        self,
        queries: Float[Tensor, "batch queries query_size"],
        keys: Float[Tensor, "batch keys key_size"] | None,
        values: Float[Tensor, "batch keys value_size"] | None,
        valid_lens: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        score: Scoring | None = None,
        weigh: Weigh | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch queries num_hiddens"]:
        """Attend where `valid_lens`, (batch,) or (batch, queries), and `mask` both allow it.

        `mask` and `bias`, which is added to the scores, broadcast to (batch, heads, queries, keys) if they are tensors.
        With a `cache`, keys are those it holds and then these, and lengths beyond them mean all so far. A call that is
        refused leaves the cache as it was.
        """
        return self._mix(queries, keys, values, valid_lens, mask, bias, score, weigh, cache)[0]

    def _mix(
        self, queries: Tensor, keys: Tensor | None, values: Tensor | None, valid_lens: Tensor | None = None,
        mask: Mask | Tensor | None = None, bias: Bias | Tensor | None = None, score: Scoring | None = None,
        weigh: Weigh | None = None, cache: Cache | None = None,
    ) -> tuple[Tensor, Callable[[], Tensor]]:  # fmt: skip
        """The output of `forward`, and a function that makes its attention weights, with gradients."""
        if not self.batch_first:
            queries, keys, values = change_rows(_swap_batch, queries, keys, values)
        check_rows(self, queries, "queries", "query_size", self.query_size)
        if cache is not None and not isinstance(cache, Cache):
            raise RegardError(f"{type(self).__name__} cache must be a Cache, got {type(cache).__name__}.")
        before = 0 if cache is None else cache.length
        try:
            query, key, value = self._project(queries, keys, values, cache)
            if self.position is not None:
                query = self.position(query, offset=key.shape[2] - query.shape[2])
            if cache is not None:
                valid_lens = _cut(valid_lens, key.shape[2])
            lengths = as_lengths(self, valid_lens, queries, key.shape[2])
            own = self._make_score(query.dtype) if isinstance(self.score, str) else self.score
            terms: dict[str, Any] = {
                "score": own if score is None else score,
                "weigh": self.weigh if weigh is None else weigh,
                "mask": _join(lengths, mask),
                "bias": bias,
            }
            out = self._attend(query, key, value, **terms, dropout=self.dropout)
        except Exception:
            if cache is not None:
                cache.truncate(before)
            raise
        mixed: Tensor = self.W_o(out.transpose(1, 2).flatten(2))
        return mixed if self.batch_first else mixed.transpose(0, 1), partial(make_weights, query, key, **terms)

    def _project(
        self, queries: Tensor, keys: Tensor | None, values: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projected queries, keys and values, (batch, heads, positions, width).

        Keys and values are the cache's, these, or one after the other.
        """
        called = type(self).__name__
        if cache is not None:
            cache.claim(self)
            if cache.is_static and self.position is not None:
                raise RegardError(
                    f"{called} position has no place beside a static cache, which does not count the queries: encode"
                    " them before the layer."
                )
            if cache.is_static and not cache.is_empty:
                held = cache.reuse(called, queries, keys, values)
                return _split(self.W_q(queries), self.num_heads), *held
        if keys is None or values is None:
            raise RegardError(f"{called} needs keys and values: only a static cache that was filled does without.")
        is_one = queries is keys is values
        # one tensor of one size was looked at as queries
        if not (is_one and self.query_size == self.key_size == self.value_size):
            check_rows(self, keys, "keys", "key_size", self.key_size)
            check_rows(self, values, "values", "value_size", self.value_size)
            check_together(self, queries, keys, values)
        own, others = self.num_heads, (self.num_key_heads, self.num_key_heads)
        if is_one:
            query, key, value = _project_heads((self.W_q, self.W_k, self.W_v), (own, *others), queries)
        else:
            query = _split(self.W_q(queries), own)
            if keys is values:
                key, value = _project_heads((self.W_k, self.W_v), others, keys)
            else:
                key, value = (_split(x, others[0]) for x in (self.W_k(keys), self.W_v(values)))
        if self.position is not None:
            key = self.position(key, offset=0 if cache is None else cache.length)
        return (query, key, value) if cache is None else (query, *cache.append(key, value))

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> Self:
        """This layer with copies of the module's weights, called as the module is, and so its outputs.

        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch...>
        >>> module, rows = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 3, 8)
        >>> layer = MultiHeadAttention.from_torch(module)
        >>> (out, weights), (expected, _) = layer(rows, rows, rows), module(rows, rows, rows)
        >>> torch.allclose(out, expected, atol=1e-6)
        True

        It is a `TorchMultiHeadAttention`, which stands in the module's place anywhere, and takes our words as well.
        `SelfAttention.from_torch` and those of other classes give layers of their own kind, called as these are.
        """
        check_torch(cls.__name__, module)
        kind = cast(type[Self], TorchMultiHeadAttention) if cls is MultiHeadAttention else cls
        # on no device: nothing is drawn for weights that are replaced
        with torch.device("meta"):
            layer = kind._of_sizes(module)
        take_weights(layer, module)
        layer.batch_first = module.batch_first
        return layer.train(module.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """An `nn.MultiheadAttention` with copies of this layer's weights; grouped heads are written out."""
        return make_torch(self)

    @classmethod
    def _of_sizes(cls, module: nn.MultiheadAttention) -> Self:
        """A layer of the module's sizes."""
        width, bias = module.embed_dim, module.in_proj_bias is not None
        return cls(module.kdim, width, module.vdim, width, module.num_heads, module.dropout, bias)

    def extra_repr(self) -> str:
        score = self.score if isinstance(self.score, str | Score) else type(self.score).__name__
        heads = f"num_heads={self.num_heads}, num_key_heads={self.num_key_heads}"
        return f"{heads}, dropout={self.dropout}, score={score}, weigh={self.weigh}"


class SelfAttention(MultiHeadAttention):
    """Multi-head attention of one sequence to itself, with the parameters and options of `MultiHeadAttention`.

    >>> layer = SelfAttention(num_hiddens=100, num_heads=5, score="additive")
    >>> layer(torch.ones(2, 4, 100), valid_lens=torch.tensor([3, 2])).shape
    torch.Size([2, 4, 100])

    Without positions it does not know of order: permuted rows give permuted rows.
    """

    def __init__(
        self, num_hiddens: int, num_heads: int, dropout: float = 0.0, bias: bool = False, **options: Any
    ) -> None:
        sizes = (num_hiddens, num_hiddens, num_hiddens, num_hiddens, num_heads)
        super().__init__(*sizes, dropout, bias, **options)

    def forward(  # type: ignore[override]
        self,
        X: Float[Tensor, "batch positions num_hiddens"],
        valid_lens: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        score: Scoring | None = None,
        weigh: Weigh | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        check_rows(self, X if self.batch_first else _swap_batch(X), "X", "num_hiddens", self.num_hiddens)
        if cache is not None and cache.is_static:
            raise RegardError("SelfAttention adds keys at each step: take a Cache() that is not static.")
        return super().forward(X, X, X, valid_lens, mask=mask, bias=bias, score=score, weigh=weigh, cache=cache)

    @classmethod
    def _of_sizes(cls, module: nn.MultiheadAttention) -> Self:
        check_one_width(cls.__name__, module)
        return cls(module.embed_dim, module.num_heads, module.dropout, module.in_proj_bias is not None)


class TorchMultiHeadAttention(TorchCall, MultiHeadAttention):  # type: ignore[misc]
    """`MultiHeadAttention` called as `nn.MultiheadAttention` is; `MultiHeadAttention.from_torch` makes it.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> layer.self_attn = MultiHeadAttention.from_torch(layer.self_attn)
    >>> encoder = nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(torch.ones(1, 3, 8), src_key_padding_mask=torch.tensor([[False, False, True]])).shape
    torch.Size([1, 3, 8])

    In the module's words it gives a pair, as the module does: True hides in `key_padding_mask` and `attn_mask`, and
    numbers are added to the scores. In ours (`valid_lens`, `mask`, `bias`, `score`, `weigh`, `cache`; True is attend)
    it gives a tensor, as our layers do. Rows are as the module's, positions first unless that has `batch_first`.

    Fourth by place, `valid_lens` is (batch,); give (batch, queries) by its name: there, two axes are the module's mask.
    Nested rows are taken where they attend to themselves without masks, as below the layers of an encoder.

    Where all keys of a query are hidden, the module's answer may be NaN; ours is zeros (before W_o's bias), and so are
    the weights. These are before dropout, where the module's are after it. Torch's fast paths, which would go around
    the layer, leave it alone.
    """


def _check_heads(layer: nn.Module, num_hiddens: int, num_heads: int, num_key_heads: int) -> None:
    called = type(layer).__name__
    if num_heads < 1 or num_hiddens % num_heads:
        raise RegardError(f"{called} num_hiddens={num_hiddens} must be a multiple of num_heads={num_heads}.")
    if num_key_heads < 1 or num_heads % num_key_heads:
        raise RegardError(f"{called} num_heads={num_heads} must be a multiple of num_key_heads={num_key_heads}.")


def _cut(valid_lens: Tensor | None, most: int) -> Tensor | None:
    """Lengths clamped to `most`; what is no tensor of lengths is refused later."""
    if not isinstance(valid_lens, Tensor) or valid_lens.dtype == torch.bool:
        return valid_lens
    known = recall_range(valid_lens)
    return valid_lens if known and known[1] <= most else valid_lens.clamp(max=most)


def _swap_batch(rows: Any) -> Any:
    """(positions, batch, width) as (batch, positions, width); what is no such tensor is refused later."""
    return rows.transpose(0, 1) if isinstance(rows, Tensor) and rows.ndim > 1 else rows


def _split(rows: Tensor, heads: int) -> Tensor:
    """(batch, n, heads · width) as (batch, heads, n, width)."""
    return rows.reshape(*rows.shape[:2], heads, rows.shape[2] // heads).transpose(1, 2)


def _project_heads(layers: Sequence[nn.Linear], heads: Sequence[int], rows: Tensor) -> list[Tensor]:
    """Rows projected by each layer to so many heads of its own, by one product where that is less work."""
    out = multiply_together(layers, rows)
    if out is None:
        return [_split(layer(rows), count) for layer, count in zip(layers, heads, strict=True)]
    # cut among heads: gradients are then put together by one copy, however they lie
    parts = out.unflatten(2, (sum(heads), out.shape[2] // sum(heads))).split(heads, 2)
    return [x.transpose(1, 2) for x in parts]


def _join(lengths: Mask, mask: Mask | Tensor | None) -> Mask:
    """Pairs that both allow; a full mask stays out of it, since engines know it by its class."""
    if mask is None:
        return lengths
    mask = as_mask(mask)
    return mask if isinstance(lengths, Full) else mask & lengths
