"""Causal self-attention by cuDNN's kernel, where that is faster than ours; what a mask should hide is ours to heal.

It is causal by counting from the first key, takes no other term, and its backward gives NaN at low logits where rows do
not fill its blocks: pytorch#196678.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor
from torch.backends import cuda

from regard.engine.backends.fused.recipe import Recipe
from regard.engine.native_gradient import align, steps_well

# rows of its blocks
BLOCK = 128
# products of numbers from which on it is worth the looks at what it made: below, ours are done before they are begun
LEAST_WORK = 2**32
LOG2E = math.log2(math.e)
# the same where rows are copied, so that they fill its blocks
WORK_TO_FILL = 2**33
# width of rows that it takes everywhere, and at most
WIDEST, MOST_WIDTH = 128, 256


def can_borrow(recipe: Recipe, query: Tensor, key: Tensor, value: Tensor, *, learns: bool) -> bool:
    """Whether a call of this kind is one for cuDNN: forward alone, or where it `learns`."""
    rows = query, key, value
    lies_well = could_borrow(recipe, *rows, learns=learns) and all(x.data_ptr() % 16 == 0 for x in rows)
    return lies_well and _takes_width(*rows, learns=learns)


def could_borrow(recipe: Recipe, query: Tensor, key: Tensor, value: Tensor, *, learns: bool) -> bool:
    """The same for rows whose addresses are not known."""
    if learns and query.shape[2] % BLOCK:
        return False
    is_worth = count_products(query) >= LEAST_WORK
    return is_worth and _is_apt(recipe, query, key, value) and all(map(steps_well, (query, key, value)))


def count_missing(recipe: Recipe, query: Tensor, key: Tensor, value: Tensor) -> int:
    """How many rows fill cuDNN's blocks for a call that learns, where that is worth their copies; 0 where not."""
    missing = -query.shape[2] % BLOCK
    rows = query, key, value
    is_worth = missing and count_products(query) >= WORK_TO_FILL
    return missing if is_worth and _is_apt(recipe, *rows) and _takes_width(*rows, learns=True) else 0


def count_products(query: Tensor) -> int:
    """Products of numbers that scores are made of, without a mask."""
    b, h, n, d = query.shape
    return b * h * n * n * d


def _is_apt(recipe: Recipe, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a call is plain causal self-attention, on a device where cuDNN is fast."""
    if not (recipe.is_dot and recipe.weigh == "softmax" and recipe.cap is None and recipe.scale > 0):
        return False
    if recipe.bias or recipe.dropout or recipe.marks or recipe.grid or recipe.before is not None or recipe.after != 0:
        return False
    n, d = query.shape[2:]
    if n != key.shape[2] or d != value.shape[3] or d % 8 or d > MOST_WIDTH:
        return False
    is_half = query.dtype in (torch.bfloat16, torch.float16)
    return is_half and query.device.type == "cuda" and has_cudnn(query.device)


def _takes_width(query: Tensor, key: Tensor, value: Tensor, *, learns: bool) -> bool:
    """Whether cuDNN takes rows as wide as these; beyond what it takes everywhere, by torch's own word."""
    if query.shape[3] <= WIDEST:
        return True
    # torch's word hangs on whether gradients are on at this moment, and what is found is kept for calls of both sorts
    with torch.inference_mode(False), torch.set_grad_enabled(learns):
        q, k, v = (_look_at(x).requires_grad_(learns) for x in (query, key, value))
        return cuda.can_use_cudnn_attention(cuda.SDPAParams(q, k, v, None, 0.0, True, k.shape[1] != q.shape[1]))


def _look_at(x: Tensor) -> Tensor:
    """The same numbers as a tensor that may say that it needs a gradient, which one of inference mode may not."""
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


@cache
def has_cudnn(device: torch.device) -> bool:
    """Whether its attention is there, and the device is one that it is fast on."""
    return torch.backends.cudnn.is_available() and torch.cuda.get_device_capability(device) >= (9, 0)


def attend_borrowed(query: Tensor, key: Tensor, value: Tensor, scale: float, keeps: bool) -> tuple[Tensor, Tensor]:
    """The output, and each row's logsumexp, which is empty unless it is to be kept."""
    made = torch._scaled_dot_product_cudnn_attention(query, key, value, None, keeps, 0.0, True, False, scale=scale)
    return made[0], made[1]


def differentiate_borrowed(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    grad = align(grad)
    # without dropout there is no seed of it to read
    none = _no_seed(query.device)
    n, m = query.shape[2], key.shape[2]
    made: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default(
        grad, query, key, value, out, logsumexp, none, none, None, None, None, n, m, 0.0, True, scale=scale
    )
    return made


@cache
def _no_seed(device: torch.device) -> Tensor:
    return torch.zeros((), dtype=torch.int64, device=device)


def as_rows_are_kept(logsumexp: Tensor) -> Tensor:
    """What cuDNN keeps of each row as our kernels keep it: a peak in powers of two, and one over its total."""
    peak = logsumexp.squeeze(-1) * LOG2E
    return torch.stack([peak, torch.ones_like(peak)])


def as_logsumexp(stat: Tensor) -> Tensor:
    """What our kernels keep of each row as cuDNN keeps it."""
    return ((stat[0] - stat[1].log2()) / LOG2E).unsqueeze(-1)
