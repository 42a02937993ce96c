"""The masks of `nn.MultiheadAttention` in our terms: True hides there, and numbers are added to the scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError


def read_masks(
    called: str, sizes: tuple[int, int, int, int], key_padding_mask: Any, attn_mask: Any, looks: bool = True
) -> tuple[Tensor | None, Tensor | None]:
    """The mask (True = attend) and the bias of torch's masks, to broadcast to (batch, heads, queries, keys), or None.

    >>> read_masks("Layer", (1, 2, 2, 2), torch.tensor([[False, True]]), torch.ones(2, 2))
    (tensor([[[[ True, False]]]]), tensor([[[[1., 1.],
              [1., 1.]]]]))

    What is −∞ hides, as True does. The rest of a mask of numbers is added, and gradients reach it. Of such a mask, most
    often one part says nothing, and is left out where one may look at the numbers.
    """
    batch, heads, n, m = sizes
    allowed: Tensor | None = None
    added: Tensor | None = None
    for name, mask, shapes in (
        ("key_padding_mask", key_padding_mask, {(batch, m): (batch, 1, 1, m)}),
        ("attn_mask", attn_mask, {(n, m): (1, 1, n, m), (batch * heads, n, m): sizes}),
    ):
        if mask is None:
            continue
        _check(f"{called} {name}", mask, list(shapes))
        mask = mask.reshape(shapes[tuple(mask.shape)])
        is_bool = mask.dtype == torch.bool
        see = ~mask if is_bool else mask.detach() != -torch.inf
        if is_bool or not looks or not bool(see.all()):
            allowed = see if allowed is None else allowed & see
        rest = None if is_bool else mask.masked_fill(~see, 0.0)
        if rest is not None and (not looks or rest.requires_grad or bool(rest.any())):
            added = rest if added is None else added + rest
    return allowed, added


def _check(name: str, mask: Any, shapes: list[tuple[int, ...]]) -> None:
    if not isinstance(mask, Tensor):
        raise RegardError(f"{name} must be a tensor, got {type(mask).__name__}.")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        kind = str(mask.dtype).removeprefix("torch.")
        raise RegardError(f"{name} must be bool (True = hidden) or floating point (added to the scores), got {kind}.")
    if tuple(mask.shape) not in shapes:
        raise RegardError(f"{name} must be {' or '.join(map(str, shapes))}, got shape {tuple(mask.shape)}.")
