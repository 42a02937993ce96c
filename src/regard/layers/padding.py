"""Padding masks: which rows of a batch are tokens, and which are padding."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.inputs import check_lengths


def find_valid(
    layer: nn.Module, rows: Tensor, valid_lens: Tensor | None, mask: Tensor | None = None
) -> Bool[Tensor, "batch positions"] | None:
    """The padding mask, True = a token, of `rows` (batch, positions, …) by `valid_lens` and `mask`; None: no padding.

    >>> find_valid(nn.Identity(), torch.ones(2, 3, 1), torch.tensor([1, 3]))
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    called, (batch, n) = type(layer).__name__, rows.shape[:2]
    if mask is not None:
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or tuple(mask.shape) != (batch, n):
            kind = str(getattr(mask, "dtype", "")).removeprefix("torch.")
            found = f"{kind} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise RegardError(
                f"{called} mask must be bool (batch, positions)=({batch}, {n}), True = a token, got {found}."
            )
        if mask.device != rows.device:
            raise RegardError(f"{called} mask must lie on the device {rows.device} of X, got {mask.device}.")
    if valid_lens is None:
        return mask
    if isinstance(valid_lens, Tensor) and valid_lens.ndim != 1:
        raise RegardError(f"{called} valid_lens must be (batch,)=({batch},), got shape {tuple(valid_lens.shape)}.")
    check_lengths(called, valid_lens, (batch, n, n), rows.device)
    valid = torch.arange(n, device=rows.device) < valid_lens[:, None]
    return valid if mask is None else valid & mask


def clear_padding(rows: Tensor, valid: Tensor | None) -> Tensor:
    """The rows with zeros in place of padding, whatever it held; gradients do not reach it."""
    return rows if valid is None else rows.masked_fill(~valid[..., None], 0)
