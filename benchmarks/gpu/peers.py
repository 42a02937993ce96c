"""What else computes the same on a GPU: torch's own kernels, its compiler, and the entmax package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.plain import Mod, Plain, scores

Call = Callable[[], Tensor]
EFFICIENT, FLASH, CUDNN = SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION


def eager(plain: Plain, *inputs: Tensor) -> Call:
    return lambda: plain(slice(None), *inputs)


def compiled(plain: Plain, *inputs: Tensor, compiles: bool = True) -> Call:
    """The same through torch.compile, as it comes."""

    def whole(*inputs: Tensor) -> Tensor:
        return plain(slice(None), *inputs)

    run = torch.compile(whole, dynamic=False) if compiles else whole
    return lambda: run(*inputs)


def sdpa(
    kernel: SDPBackend | None, query: Tensor, key: Tensor, value: Tensor, *,
    bias: Tensor | None = None, is_causal: bool = False,
) -> Call:  # fmt: skip
    """torch's attention by one of its kernels, or by the one it takes; off the GPU, which lacks most, always by that.

    A `bias` of truths is a mask.
    """
    shares_heads = key.shape[-3] != query.shape[-3]

    def run() -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, is_causal=is_causal, enable_gqa=shares_heads
        )

    def run_by_kernel() -> Tensor:
        with sdpa_kernel(kernel):
            return run()

    return run_by_kernel if kernel is not None and query.is_cuda else run


def flex(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Mod | None = None, change: Mod | None = None,
    by_batch: bool = False, compiles: bool = True,
) -> Call:  # fmt: skip
    """FlexAttention; a block mask is made once, one for each of the batch if `by_batch`."""

    # in the first call, so that a machine without it loses this peer and not the case
    @functools.cache
    def build() -> Call:
        from torch.nn.attention.flex_attention import flex_attention

        run = torch.compile(flex_attention, dynamic=False) if compiles else flex_attention
        batch = query.shape[0] if by_batch else None
        blocks = mask and block_mask(mask, batch, query.shape[-2], query.device, compiles)
        shares_heads = key.shape[-3] != query.shape[-3]
        return functools.partial(
            run, query, key, value, score_mod=change, block_mask=blocks, enable_gqa=shares_heads
        )  # fmt: skip

    return lambda: build()()


@functools.cache
def near(before: int | None, after: int) -> Mod:
    """Keys from `before` back (None: all) to `after` ahead; always the same function, which a block mask is kept by."""
    return lambda b, h, i, j: j <= i + after if before is None else (j <= i + after) & (j >= i - before)


def add(bias: Tensor) -> Mod:
    """A captured bias, learned where it asks so."""
    return lambda score, b, h, i, j: score + bias[0, h, i, j]


@functools.lru_cache(maxsize=2)
def block_mask(mask: Mod, batch: int | None, n: int, device: torch.device, compiles: bool) -> Any:
    """Which blocks of keys each block of queries meets; kept, for cases that share one."""
    from torch.nn.attention.flex_attention import create_block_mask

    # compiled, it holds no n×n truths, and takes seconds to compile
    return create_block_mask(mask, batch, None, n, n, device=device, _compile=compiles and n > 2**15)


def entmax(name: str, query: Tensor, key: Tensor, value: Tensor, *, is_wide: bool) -> Call:
    """A function of the entmax package on dense scores, in float32 (`is_wide`) or in the dtype of the inputs."""
    wide = torch.promote_types(query.dtype, torch.float32) if is_wide else query.dtype

    def run() -> Tensor:
        import entmax  # type: ignore[import-untyped]

        weights: Tensor = getattr(entmax, name)(scores(slice(None), query.to(wide), key.to(wide)), dim=-1)
        return weights.to(value.dtype) @ value

    return run
