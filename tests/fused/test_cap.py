"""The soft cap of half precision, whose tanh is not the one that Triton's interpreter meets in a call."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from regard.engine.backends.fused.kernels.scores import Score, scale_dot
from tests.fused.against import DEVICE


@triton.jit
def cap_rows(dots, out, score, count: tl.constexpr, precision: tl.constexpr, fast: tl.constexpr):
    at = tl.arange(0, count)
    tl.store(out + at, scale_dot(tl.load(dots + at), score, 1.0, precision, fast))


@pytest.mark.parametrize("cap", [20.0, 1e4, 1e7])
@pytest.mark.parametrize(("precision", "rtol"), [("tf32", 2e-5), ("ieee", 1e-6)])
def test_scores_of_any_size_keep_their_digits(precision, rtol, cap):
    far = torch.cat([torch.logspace(-9, 2, 4092, dtype=torch.float64) * cap, torch.tensor([0.0, 3.0, 0.5, 1e-3])])
    dots = torch.where(torch.arange(4096) % 2 == 0, far, -far).float().to(DEVICE)
    out = torch.empty_like(dots)
    fast = precision == "tf32" and DEVICE == "cuda"
    cap_rows[(1,)](dots, out, Score(scale=1.0, slope=1.0, cap=cap), 4096, precision, fast)
    torch.testing.assert_close(out.double(), cap * torch.tanh(dots.double() / cap), rtol=rtol, atol=0.0)
