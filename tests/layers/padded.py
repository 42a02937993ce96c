"""Rows with padding, and what may not come of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

LENS = torch.tensor([3, 7, 0, 1])
D = 6


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shake(layer: nn.Module) -> nn.Module:
    """In float64, with every parameter drawn, so that none hides by being zero or one."""
    layer = layer.double()
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.add_(0.3 * draw(*parameter.shape, seed=number))
    return layer


def find_padding(lens: Tensor, n: int) -> Tensor:
    return torch.arange(n) >= lens[:, None]


def differentiate(
    layer: nn.Module, call: Callable[..., Tensor], X: Tensor, where: Tensor | None = None
) -> list[Tensor]:
    """The result, and gradients of X and all parameters by what `where` (all by default) leaves of it."""
    X = X.clone().requires_grad_()
    torch.manual_seed(3)
    out = call(X)
    kept = out if where is None else out[where]
    weights = torch.cos(torch.arange(kept.numel(), dtype=out.dtype)).view_as(kept)
    parameters = [x for x in layer.parameters() if x.requires_grad]
    grads = torch.autograd.grad((kept * weights).sum(), [X, *parameters])
    return [out.detach(), *grads]


def assert_unread(layer: nn.Module, call: Callable[..., Tensor], padding: Tensor, width: int = D) -> None:
    """What stands in padding changes no bit of results and gradients, finite or not."""
    X = draw(*padding.shape, width)
    plain = differentiate(layer, call, X.masked_fill(padding[..., None], 0))
    assert all(x.isfinite().all() for x in plain)
    assert not plain[1][padding].any()
    for poison in (7.0, 1e300, torch.inf, torch.nan):
        poisoned = differentiate(layer, call, X.masked_fill(padding[..., None], poison))
        assert all(a.equal(b) for a, b in zip(plain, poisoned, strict=True)), poison
