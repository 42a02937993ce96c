"""How close two answers must be, by dtype: the one table of the tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# of the largest number in the expected tensor, at least one: sums cancel, small entries bear the error of large ones
TOLERANCES = {
    torch.float64: 1e-11,
    torch.float32: 1e-5,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
}


def distance(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, in units of what the expected tensor's dtype allows: one is just good enough."""
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if expected.numel() == 0:
        return 0.0
    actual, exact = actual.detach().double(), expected.detach().double()
    allowed = TOLERANCES[expected.dtype] * max(1.0, exact.abs().max().item())
    return (actual - exact).abs().max().item() / allowed


def assert_close(actual: Tensor, expected: Tensor, what: str = "output") -> None:
    """The same numbers, up to the table; the expected tensor's dtype says which line of it."""
    far = distance(actual, expected)
    # written so that NaN fails
    assert far <= 1, f"{what} is off by {far:.3g} times the tolerance for {expected.dtype}"


def assert_all_close(actual: Sequence[Tensor], expected: Sequence[Tensor], names: Sequence[str]) -> None:
    """Several answers, each under its name."""
    for one, other, name in zip(actual, expected, names, strict=True):
        assert_close(one, other, name)


# how torch's gradcheck compares a gradient with differences of the function, in float64
DIFFERENCES = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-4, "fast_mode": True}
