"""What the incidents share: softmax attention written out in float64, the weighers, views, and calls on any device.

A place is a backend, or one on a device: "tiled", "fused on cuda". Tests make their tensors on the CPU; `run` and
`call` take them to the place and bring the answer back.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import RegardError, attend, explain
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum
from tests.terms import move

BACKENDS = ("reference", "tiled", "sdpa", "auto")
ON_GPU = ("fused on cuda", "auto on cuda")
WEIGHERS = {
    "softmax": Softmax(),
    "sink": Softmax(torch.tensor(0.4)),
    "relu": Relu(),
    "squared relu": Relu(power=2, scale=0.25),
    "sigmoid": Sigmoid(),
    "entmax": Entmax(),
    "entmax 1.3": Entmax(1.3),
    "sparsemax": Sparsemax(),
    "hard": Hard(),
    "hard sample": Hard("sample", seed=7),
    "sum": Sum(),
}
# each a view of memory that is NaN wherever the view is not
VIEWS = {
    "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "widths outside": lambda x: x.mT.contiguous().mT,
    "expanded over sequences": lambda x: x[:1].clone().expand(x.shape),
    "expanded over heads": lambda x: x[:, :1].clone().expand(x.shape),
    "expanded over positions": lambda x: x[:, :, :1].clone().expand(x.shape),
    "packed": lambda x: torch.cat([_nan(x), x, _nan(x)], -1).chunk(3, -1)[1],
    "offset by one": lambda x: torch.cat([x.new_full((1,), torch.nan), x.flatten()])[1:].view(x.shape),
    "padded": lambda x: torch.cat([x, _nan(x)], -1)[..., : x.shape[-1]],
    "every second": lambda x: torch.stack([x, _nan(x)], -1).flatten(-2)[..., ::2],
    "every second row": lambda x: torch.stack([x, _nan(x)], -2).flatten(-3, -2)[..., ::2, :],
}


def _nan(x: Tensor) -> Tensor:
    return torch.full_like(x, torch.nan)


def split(place: str) -> tuple[str, str]:
    """The backend and the device of a place."""
    backend, _, device = place.partition(" on ")
    return backend, device or "cpu"


def make(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    """Random leaves of these shapes."""
    noise = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=noise, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def cosines(like: Tensor) -> Tensor:
    """The gradient from above, where a test has no other: no two numbers alike."""
    steps = torch.arange(like.numel(), dtype=torch.float64, device=like.device)
    return torch.cos(steps).view(like.shape).to(like.dtype)


def call(query: Tensor, key: Tensor, value: Tensor, backend: str, **options: Any) -> Tensor:
    """`attend` at a place; what was elsewhere is taken there, strides and all where memory has no holes."""
    backend, device = split(backend)
    return attend(
        *(x.to(device) for x in (query, key, value)),
        **{at: move(x, device) for at, x in options.items()},
        backend=backend,
    )


def run(
    query: Tensor, key: Tensor, value: Tensor, grad: Tensor | None = None, backend: str = "auto", **options: Any
) -> list[Tensor]:
    """Output and gradients of query, key and value; a backend that refuses the call skips the test with its reason."""
    try:
        out = call(query, key, value, backend, **options)
    except RegardError as error:
        if backend == "sdpa" and "cannot take this call" in str(error):
            pytest.skip(str(error))
        raise
    grad = cosines(out) if grad is None else grad.to(out.device)
    grads = torch.autograd.grad(out, (query, key, value), grad, allow_unused=True, materialize_grads=True)
    return [x.to(query.device) for x in (out.detach(), *grads)]


def takes(backend: str, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> bool:
    try:
        explain(query, key, value, **options, backend=backend)
    except RegardError:
        return False
    return True


def run_exactly(*rows: Tensor, backend: str, **options: Any) -> list[Tensor]:
    """The same call by definition, in float64, on the device of a place."""
    wide = [x.detach().double().requires_grad_() for x in rows]
    return run(*wide, backend=f"reference on {split(backend)[1]}", **options)


def assert_all_near(actual: list[Tensor], expected: list[Tensor], units: float = 32.0, where: str = "") -> None:
    for name, one, two in zip(("output", "dquery", "dkey", "dvalue"), actual, expected, strict=True):
        assert_near(one, two, units, f"{name}{where}")


def attend_plainly(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None = None, cap: float | None = None,
    allowed: Tensor | None = None, bias: Tensor | None = None, sink: Tensor | None = None, keep: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Softmax attention from its formula, every option in the order in which the papers apply them."""
    groups = query.shape[-3] // key.shape[-3]
    key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scores = torch.einsum("...id,...jd->...ij", query, key)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    if bias is not None:
        scores = scores + bias
    if allowed is None:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool)
    mass = torch.exp(scores - scores.detach().amax(-1, keepdim=True)) * allowed
    total = mass.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink[:, None, None] - scores.detach().amax(-1, keepdim=True))
    weights = mass / torch.where(total == 0, 1.0, total)
    return (weights if keep is None else weights * keep) @ value


def assert_same_bits(actual: list[Tensor], expected: list[Tensor]) -> None:
    for name, one, two in zip(("output", "dquery", "dkey", "dvalue"), actual, expected, strict=True):
        assert torch.equal(one, two), f"{name} differs in {int((one != two).sum())} of {one.numel()} numbers"


def assert_near(actual: Tensor, expected: Tensor, units: float = 32.0, what: str = "output") -> None:
    """Equal up to so many units in the last place of the largest number, or of one: what goes in is of that size."""
    assert actual.shape == expected.shape
    if expected.numel() == 0:
        return
    unit = torch.finfo(actual.dtype).eps * max(expected.detach().double().abs().max().item(), 1.0)
    off = (actual.detach().double() - expected.detach().double()).abs().max().item()
    # written so that NaN fails
    assert off <= units * unit, f"{what} is off by {off / unit:.3g} units in the last place, allowed are {units:g}"
