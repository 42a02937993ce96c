"""Multi-head attention under the call of `nn.MultiheadAttention`, to stand in its place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.inputs import change_rows
from regard.layers.multihead import MultiHeadAttention
from regard.layers.torch_parity import join_biases, rename_weights
from regard.mask import Allowed, Causal
from regard.watching.masks import read_masks

OURS = ("valid_lens", "mask", "bias", "score", "weigh", "cache")


class Own(Tensor):
    """A tensor that torch's fast paths keep away from: they read the weights of a layer and go around it."""


class TorchMultiHeadAttention(MultiHeadAttention):
    """`MultiHeadAttention` called as `nn.MultiheadAttention` is; `MultiHeadAttention.from_torch` makes it.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> layer.self_attn = MultiHeadAttention.from_torch(layer.self_attn)
    >>> encoder = nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(torch.ones(1, 3, 8), src_key_padding_mask=torch.tensor([[False, False, True]])).shape
    torch.Size([1, 3, 8])

    In the module's words it gives a pair, as the module does: True hides in `key_padding_mask` and `attn_mask`, and
    numbers are added to the scores. In ours (`valid_lens`, `mask`, `bias`, `score`, `weigh`, `cache`; True is attend)
    it gives a tensor, as our layers do. Rows are as the module's, positions first unless that has `batch_first`.

    Where all keys of a query are hidden, the module's answer may be NaN; ours is zeros (before W_o's bias), and so are
    the weights. These are before dropout, where the module's are after it. Torch's fast paths, which would go around
    the layer, leave it alone.
    """

    # what torch's layers, and those who look at them, ask of an attention
    bias_k = bias_v = None
    add_zero_attn = False

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        **ours: Any,
    ) -> tuple[Tensor, Tensor | None] | Tensor:
        """The module's call, (out, weights or None), or in our own words `MultiHeadAttention`'s."""
        called = type(self).__name__
        if unknown := sorted(set(ours) - set(OURS)):
            raise RegardError(f"{called} takes torch's words and {', '.join(OURS)}, got {unknown[0][:40]}.")
        if _is_whole(key_padding_mask) and "valid_lens" not in ours:
            # the fourth of ours is lengths
            ours, key_padding_mask = {"valid_lens": key_padding_mask, **ours}, None
        if ours:
            theirs = {"key_padding_mask": key_padding_mask is not None, "attn_mask": attn_mask is not None}
            theirs |= {"is_causal": is_causal, "need_weights": not need_weights}
            if named := [name for name, is_given in theirs.items() if is_given]:
                raise RegardError(
                    f"{called} is called in torch's words or in ours, got {named[0]} and {next(iter(ours))}: with ours,"
                    " masks are mask and bias, and weights are in attention_weights."
                )
            return super().forward(query, key, value, **ours)
        if is_causal and attn_mask is None:
            raise RegardError(
                f"{called} is_causal says what attn_mask is, and there is none: give it, or say mask=Causal()."
            )
        if getattr(query, "is_nested", False):
            raise RegardError(f"{called} takes no nested tensors: give padded rows and key_padding_mask.")
        is_single = isinstance(query, Tensor) and query.ndim == 2
        if is_single:
            query, key, value = change_rows(self._as_batch, query, key, value)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        # as torch believes it, where nothing else needs the mask
        is_causal = is_causal and key_padding_mask is None and not need_weights
        terms = {"mask": Causal(0)} if is_causal else self._read_masks(query, key, key_padding_mask, attn_mask)
        out, make = self._mix(query, key, value, **terms)
        weights = make() if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not is_single:
            return out, weights
        return out.squeeze(0 if self.batch_first else 1), None if weights is None else weights[0]

    def _as_batch(self, rows: Any) -> Any:
        """One sequence as a batch of one; what is none is complained about later."""
        is_single = isinstance(rows, Tensor) and rows.ndim == 2
        return rows.unsqueeze(0 if self.batch_first else 1) if is_single else rows

    def _read_masks(self, query: Any, key: Any, padding: Any, masked: Any) -> dict[str, Any]:
        if not all(isinstance(rows, Tensor) and rows.ndim == 3 for rows in (query, key)):
            # complained about later
            return {}
        at = 1 if self.batch_first else 0
        sizes = query.shape[1 - at], self.num_heads, query.shape[at], key.shape[at]
        allowed, added = read_masks(type(self).__name__, sizes, padding, masked)
        return {"mask": None if allowed is None else Allowed(allowed), "bias": added}

    @property
    def embed_dim(self) -> int:
        return self.num_hiddens

    @property
    def kdim(self) -> int:
        return self.key_size

    @property
    def vdim(self) -> int:
        return self.value_size

    @property
    def head_dim(self) -> int:
        return self.head_width

    @property
    def _qkv_same_embed_dim(self) -> bool:
        return self.num_hiddens == self.query_size == self.key_size == self.value_size

    @property
    def in_proj_weight(self) -> Tensor | None:
        linears = self.W_q, self.W_k, self.W_v
        return torch.cat([linear.weight for linear in linears]) if self._qkv_same_embed_dim else None

    @property
    def in_proj_bias(self) -> Tensor:
        """Those of the three projections, zeros where there are none: by its class torch sees what this layer is."""
        return join_biases(self.W_q, self.W_k, self.W_v).as_subclass(Own)

    @property
    def out_proj(self) -> nn.Linear:
        return self.W_o

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        """Weights of the module load as well as our own."""
        rename_weights(state, prefix)
        super()._load_from_state_dict(state, prefix, *rest)


def _is_whole(lengths: Any) -> bool:
    return isinstance(lengths, Tensor) and lengths.dtype != torch.bool and not lengths.is_floating_point()
