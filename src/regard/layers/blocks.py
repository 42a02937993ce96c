"""Blocks of the Transformer, around any attention layer: https://arxiv.org/abs/1706.03762."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.core import Bias, RegardError, names
from regard.layers.attention import Attention
from regard.layers.cache import Cache
from regard.layers.inputs import check_rate, check_rows
from regard.layers.multihead import MultiHeadAttention, SelfAttention
from regard.mask import Causal, Window

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {name: getattr(functional, name) for name in names.ACTIVATIONS}
# the same one each time: what is kept of a call finds it sooner
_PAST = Causal()


class PositionWiseFFN(nn.Module):
    """The position-wise feed-forward network (MLP): dense2(act(dense1(x))) at every position.

    >>> PositionWiseFFN(4, 8, 5)(torch.ones(2, 3, 4)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        ffn_num_input: int,
        ffn_num_hiddens: int,
        ffn_num_outputs: int,
        dropout: float = 0.0,
        *,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        check_rate(self, dropout)
        if activation not in ACTIVATIONS:
            names = ", ".join(map(repr, ACTIVATIONS))
            raise RegardError(f"PositionWiseFFN activation must be one of {names}, got {activation!r}.")
        self.ffn_num_input = ffn_num_input
        self.dense1 = nn.Linear(ffn_num_input, ffn_num_hiddens)
        self.dense2 = nn.Linear(ffn_num_hiddens, ffn_num_outputs)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, X: Float[Tensor, "batch positions ffn_num_input"]
    ) -> Float[Tensor, "batch positions ffn_num_outputs"]:
        check_rows(self, X, "X", "ffn_num_input", self.ffn_num_input)
        hidden = ACTIVATIONS[self.activation](self.dense1(X))
        out: Tensor = self.dense2(self.dropout(hidden))
        return out


class AddNorm(nn.Module):
    """A residual connection and a layer norm, `ln`: the norm of X + Y.

    >>> AddNorm(4)(torch.ones(2, 3, 4), torch.ones(2, 3, 4)).shape
    torch.Size([2, 3, 4])

    Y is what a sublayer made of X, or the sublayer itself; with `norm_first`, which needs the sublayer, the norm comes
    before it: X + sublayer(ln(X)).
    """

    def __init__(self, num_hiddens: int, dropout: float = 0.0, *, norm_first: bool = False) -> None:
        super().__init__()
        check_rate(self, dropout)
        self.num_hiddens = num_hiddens
        self.ln = nn.LayerNorm(num_hiddens)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, X: Tensor, Y: Tensor | Callable[[Tensor], Tensor]) -> Tensor:
        check_rows(self, X, "X", "num_hiddens", self.num_hiddens)
        changed: Tensor
        if self.norm_first:
            if isinstance(Y, Tensor):
                raise RegardError("AddNorm with norm_first=True needs the sublayer itself as Y, got a tensor.")
            changed = self.dropout(Y(self.ln(X)))
            return X + changed
        changed = self.dropout(Y if isinstance(Y, Tensor) else Y(X))
        out: Tensor = self.ln(X + changed)
        return out


class EncoderBlock(nn.Module):
    """A Transformer encoder block: self-attention and a feed-forward network, each with residual connection and norm.

    >>> attention = MultiHeadAttention(24, 24, 24, num_hiddens=24, num_heads=8)
    >>> block = EncoderBlock(attention, num_hiddens=24, ffn_num_hiddens=48)
    >>> block(torch.ones(2, 100, 24), torch.tensor([3, 2])).shape
    torch.Size([2, 100, 24])

    `attention` is any layer called (queries, keys, values, valid_lens), or `SelfAttention`; what else a call is given
    goes to it.
    """

    def __init__(
        self,
        attention: Attention,
        num_hiddens: int,
        ffn_num_hiddens: int,
        dropout: float = 0.0,
        *,
        norm_first: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        _check_attention(self, attention=attention)
        self.num_hiddens = num_hiddens
        self.attention = attention
        self.addnorm1 = AddNorm(num_hiddens, dropout, norm_first=norm_first)
        self.ffn = PositionWiseFFN(num_hiddens, ffn_num_hiddens, num_hiddens, dropout, activation=activation)
        self.addnorm2 = AddNorm(num_hiddens, dropout, norm_first=norm_first)

    def forward(
        self, X: Float[Tensor, "batch positions num_hiddens"], valid_lens: Tensor | None = None, **terms: Any
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        check_rows(self, X, "X", "num_hiddens", self.num_hiddens)
        attention = self.attention
        if isinstance(attention, SelfAttention):
            Y = self.addnorm1(X, lambda x: attention(x, valid_lens, **terms))
        else:
            Y = self.addnorm1(X, lambda x: _ask(attention, x, x, valid_lens, **terms))
        out: Tensor = self.addnorm2(Y, self.ffn)
        return out

    @property
    def attention_weights(self) -> Tensor | None:
        """The weights of its attention layer's last call."""
        return self.attention.attention_weights


class DecoderBlock(nn.Module):
    """A Transformer decoder block: causal self-attention, cross-attention to the source, and a feed-forward network.

    >>> def attend():
    ...     return MultiHeadAttention(24, 24, 24, num_hiddens=24, num_heads=8)
    >>> block = DecoderBlock(attend(), attend(), num_hiddens=24, ffn_num_hiddens=48)
    >>> block(torch.ones(2, 10, 24), torch.ones(2, 100, 24), torch.tensor([3, 2])).shape
    torch.Size([2, 10, 24])

    Position i sees positions up to i, with `before` at most so many back; `bias` is added to those scores. With
    `caches`, (Cache(), Cache(is_static=True)), X holds the new positions alone: a step gives what the whole sequence
    would.
    """

    def __init__(
        self,
        attention1: Attention,
        attention2: Attention,
        num_hiddens: int,
        ffn_num_hiddens: int,
        dropout: float = 0.0,
        *,
        norm_first: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        _check_attention(self, attention1=attention1, attention2=attention2)
        self.num_hiddens = num_hiddens
        self.attention1, self.attention2 = attention1, attention2
        self.addnorm1 = AddNorm(num_hiddens, dropout, norm_first=norm_first)
        self.addnorm2 = AddNorm(num_hiddens, dropout, norm_first=norm_first)
        self.ffn = PositionWiseFFN(num_hiddens, ffn_num_hiddens, num_hiddens, dropout, activation=activation)
        self.addnorm3 = AddNorm(num_hiddens, dropout, norm_first=norm_first)

    def forward(
        self,
        X: Float[Tensor, "batch positions num_hiddens"],
        memory: Float[Tensor, "batch source_positions width"],
        memory_valid_lens: Tensor | None = None,
        *,
        before: int | None = None,
        bias: Bias | Tensor | None = None,
        caches: tuple[Cache, Cache] | None = None,
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        check_rows(self, X, "X", "num_hiddens", self.num_hiddens)
        check_rows(self, memory, "memory", "width", None)
        own, other = self._check_caches(caches)
        Y = self.addnorm1(X, lambda x: self._look_back(x, own, before, bias))
        given = {} if other is None else {"cache": other}
        Z = self.addnorm2(Y, lambda y: _ask(self.attention2, y, memory, memory_valid_lens, **given))
        out: Tensor = self.addnorm3(Z, self.ffn)
        return out

    def _look_back(self, x: Tensor, cache: Cache | None, before: int | None, bias: Bias | Tensor | None) -> Tensor:
        out: Tensor
        past = _PAST if before is None else Window(before, 0)
        if isinstance(self.attention1, SelfAttention):
            out = self.attention1(x, mask=past, bias=bias, cache=cache)
        elif isinstance(self.attention1, MultiHeadAttention):
            out = self.attention1(x, x, x, mask=past, bias=bias, cache=cache)
        elif given := [name for name, term in (("bias", bias), ("before", before)) if term is not None]:
            raise RegardError(
                f"DecoderBlock {given[0]} needs attention1 to be a MultiHeadAttention, got"
                f" {type(self.attention1).__name__}."
            )
        else:
            # a length for each query says the same, and every layer knows it
            valid_lens = torch.arange(1, x.shape[1] + 1, device=x.device).expand(x.shape[0], -1)
            out = self.attention1(x, x, x, valid_lens)
        return out

    def _check_caches(self, caches: tuple[Cache, Cache] | None) -> tuple[Cache | None, Cache | None]:
        if caches is None:
            return None, None
        if not isinstance(caches, tuple) or [type(x) for x in caches] != [Cache, Cache] or not caches[1].is_static:
            raise RegardError("DecoderBlock caches must be (Cache(), Cache(is_static=True)): the source is read once.")
        for name in ("attention1", "attention2"):
            kind = type(getattr(self, name))
            if not issubclass(kind, MultiHeadAttention):
                raise RegardError(f"DecoderBlock caches need {name} to be a MultiHeadAttention, got {kind.__name__}.")
        return caches

    @property
    def attention_weights(self) -> tuple[Tensor | None, Tensor | None]:
        """The weights of the last call: of causal self-attention, and of cross-attention to the source."""
        return self.attention1.attention_weights, self.attention2.attention_weights


class AttentionDecoder(nn.Module):
    """The base class of decoders with attention: a state from the encoder's outputs, steps, and attention weights.

    A subclass writes `init_state` and `forward`, and shows `attention_weights`.
    """

    def init_state(self, enc_outputs: Any, enc_valid_lens: Tensor | None = None, *args: Any) -> Any:
        """The state before the first step."""
        raise NotImplementedError

    def forward(self, X: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Outputs for X, and the state after it."""
        raise NotImplementedError

    @property
    def attention_weights(self) -> Any:
        """The weights of the last call."""
        raise NotImplementedError


def _ask(attention: Attention, queries: Tensor, keys: Tensor, valid_lens: Tensor | None, **terms: Any) -> Tensor:
    """Lengths go by their name where that is known: the fourth of ours under torch's call may be a mask of torch's."""
    out: Tensor
    if isinstance(attention, MultiHeadAttention):
        out = attention(queries, keys, keys, valid_lens=valid_lens, **terms)
    else:
        out = attention(queries, keys, keys, valid_lens, **terms)
    return out


def _check_attention(block: nn.Module, **layers: object) -> None:
    for name, layer in layers.items():
        if not isinstance(layer, nn.Module):
            raise RegardError(f"{type(block).__name__} {name} must be an attention layer, got {type(layer).__name__}.")
