"""What else computes the same on a GPU: torch's own kernels, its compiler, and the entmax package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.plain import Plain, scores

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
    kernel: SDPBackend, query: Tensor, key: Tensor, value: Tensor, *,
    bias: Tensor | None = None, is_causal: bool = False,
) -> Call:  # fmt: skip
    """torch's attention by one of its kernels; off the GPU, which lacks most of them, by whichever it takes."""
    shares_heads = key.shape[-3] != query.shape[-3]

    def run() -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, is_causal=is_causal, enable_gqa=shares_heads
        )

    def run_by_kernel() -> Tensor:
        with sdpa_kernel(kernel):
            return run()

    return run_by_kernel if query.is_cuda else run


def flex(
    query: Tensor, key: Tensor, value: Tensor, *, before: int | None = None, after: int | None = None,
    bias: Tensor | None = None, compiles: bool = True,
) -> Call:  # fmt: skip
    """FlexAttention; `after` asks for a block mask, which is made once. A captured bias is learned where it asks so."""

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        assert bias is not None
        return score + bias[0, h, i, j]

    # in the first call, so that a machine without it loses this peer and not the case
    @functools.cache
    def build() -> Call:
        from torch.nn.attention.flex_attention import flex_attention

        run = torch.compile(flex_attention, dynamic=False) if compiles else flex_attention
        blocks = None if after is None else block_mask(query.shape[-2], before, after, query.device, compiles)
        return functools.partial(run, query, key, value, score_mod=None if bias is None else add, block_mask=blocks)

    return lambda: build()()


@functools.lru_cache(maxsize=2)
def block_mask(n: int, before: int | None, after: int, device: torch.device, compiles: bool) -> Any:
    """Which blocks of keys each block of queries meets; kept, for cases that share one."""
    from torch.nn.attention.flex_attention import create_block_mask

    def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + after if before is None else (j <= i + after) & (j >= i - before)

    return create_block_mask(near, None, None, n, n, device=device, _compile=compiles)


def entmax(name: str, query: Tensor, key: Tensor, value: Tensor, *, is_wide: bool) -> Call:
    """A function of the entmax package on dense scores, in float32 (`is_wide`) or in the dtype of the inputs."""
    wide = torch.promote_types(query.dtype, torch.float32) if is_wide else query.dtype

    def run() -> Tensor:
        import entmax  # type: ignore[import-untyped]

        weights: Tensor = getattr(entmax, name)(scores(slice(None), query.to(wide), key.to(wide)), dim=-1)
        return weights.to(value.dtype) @ value

    return run
