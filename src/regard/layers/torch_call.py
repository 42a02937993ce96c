"""Multi-head attention with the signature of `nn.MultiheadAttention`, to stand in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.inputs import change_rows
from regard.layers.torch_parity import join_biases, rename_weights
from regard.mask import Allowed, Causal
from regard.watching.masks import read_masks

OURS = ("valid_lens", "mask", "bias", "score", "weigh", "cache")


class Own(Tensor):
    """A tensor that torch's fast paths keep away from: they read the weights of a layer and go around it."""


class TorchCall(nn.Module):
    """A mixin that gives our multi-head attention the module's signature; it stands first among the bases."""

    num_heads: int
    num_hiddens: int
    key_size: int
    query_size: int
    value_size: int
    head_width: int
    batch_first: bool
    W_q: nn.Linear
    W_k: nn.Linear
    W_v: nn.Linear
    W_o: nn.Linear
    _mix: Callable[..., tuple[Tensor, Callable[[], Tensor]]]

    # what torch's layers, and those who look at them, ask of an attention
    bias_k = bias_v = None
    add_zero_attn = False

    def forward(
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
        """The module's call, (out, weights or None), or in our own words that of the layer."""
        called = type(self).__name__
        if unknown := sorted(set(ours) - set(OURS)):
            raise RegardError(f"{called} takes torch's words and {', '.join(OURS)}, got {unknown[0][:40]}.")
        is_single = isinstance(query, Tensor) and query.ndim == 2
        if not is_single and _is_lengths(key_padding_mask) and "valid_lens" not in ours:
            # the fourth of ours
            ours, key_padding_mask = {"valid_lens": key_padding_mask, **ours}, None
        if ours:
            theirs = {"key_padding_mask": key_padding_mask is not None, "attn_mask": attn_mask is not None}
            theirs |= {"is_causal": is_causal, "need_weights": not need_weights}
            if named := [name for name, is_given in theirs.items() if is_given]:
                raise RegardError(
                    f"{called} is called in torch's words or in ours, got {named[0]} and {next(iter(ours))}: with ours,"
                    " masks are mask and bias, and weights are in attention_weights."
                )
            out: Tensor = super().forward(query, key, value, **ours)
            return out
        if is_causal and attn_mask is None:
            raise RegardError(
                f"{called} is_causal says what attn_mask is, and there is none: give it, or say mask=Causal()."
            )
        if any(getattr(rows, "is_nested", False) for rows in (query, key, value)):
            is_plain = query is key is value and key_padding_mask is attn_mask is None
            if not is_plain or need_weights or not self.batch_first:
                raise RegardError(
                    f"{called} takes nested rows with batch_first, where they attend to themselves with no masks and"
                    " need_weights=False: else give padded rows and key_padding_mask."
                )
            return self._mix_nested(query), None
        if is_single:
            query, key, value = change_rows(self._as_batch, query, key, value)
            key_padding_mask = key_padding_mask[None] if isinstance(key_padding_mask, Tensor) else key_padding_mask
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

    def _mix_nested(self, nested: Tensor) -> Tensor:
        """The output for a nested tensor, as a nested tensor; padded on the way."""
        rows, counts = torch.nested.to_padded_tensor(nested, 0.0), [len(x) for x in nested.unbind()]
        out = self._mix(rows, rows, rows, torch.tensor(counts, device=rows.device))[0]
        cut = [x[:count] for x, count in zip(out, counts, strict=True)]
        return torch.nested.as_nested_tensor(cut, layout=nested.layout)

    def _as_batch(self, rows: Any) -> Any:
        """One sequence as a batch of one; what is none is refused later."""
        is_single = isinstance(rows, Tensor) and rows.ndim == 2
        return rows.unsqueeze(0 if self.batch_first else 1) if is_single else rows

    def _read_masks(self, query: Any, key: Any, padding: Any, masked: Any) -> dict[str, Any]:
        if not all(isinstance(rows, Tensor) and rows.ndim == 3 for rows in (query, key)):
            # refused later
            return {}
        at = 1 if self.batch_first else 0
        sizes = query.shape[1 - at], self.num_heads, query.shape[at], key.shape[at]
        # to look at numbers, the host would wait for the device
        looks = query.device.type == "cpu" and not torch.compiler.is_compiling()
        allowed, added = read_masks(type(self).__name__, sizes, padding, masked, looks)
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
    def in_proj_bias(self) -> Tensor | None:
        """The biases of the three projections, zeros where there are none; their class tells torch what this layer is.

        A compiler may not make that class; None keeps torch's layers off their fast path, too.
        """
        if torch.compiler.is_compiling():
            return None
        return join_biases(self.W_q, self.W_k, self.W_v).as_subclass(Own)

    @property
    def out_proj(self) -> nn.Linear:
        return self.W_o

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        """Weights of the module load as well as our own."""
        rename_weights(state, prefix)
        super()._load_from_state_dict(state, prefix, *rest)


def _is_lengths(given: Any) -> bool:
    # whole numbers in two axes are a mask of the wrong kind
    is_number = isinstance(given, Tensor) and given.ndim == 1 and given.dtype != torch.bool
    return is_number and not given.is_floating_point()
