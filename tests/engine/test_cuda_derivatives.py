"""Derivatives on a CUDA device: of any order, under `torch.func`, of scores that draw; and what is refused there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jvp, vmap
from torch.nn import functional

from regard import attend, explain
from regard.bias import Dense
from regard.core import RegardError
from regard.mask import Allowed, Causal, Lengths
from regard.score import Additive, Bilinear, Feature
from regard.weigh import Entmax, Relu, Sigmoid, Softmax, Sparsemax

pytestmark = pytest.mark.gpu


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to("cuda", dtype)


def rows(n: int = 37, width: int = 16, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [draw(2, 2, n, width, dtype=dtype, seed=seed) for seed in (1, 2, 3)]


def curve(*args: Tensor, **terms: Any) -> Tensor:
    return attend(*args, **terms).square().sum()


def differ(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


# by the dtype of what they hold
TERMS: dict[str, Any] = {
    "plain": lambda dtype: {},
    "causal": lambda dtype: {"mask": Causal()},
    "tanh": lambda dtype: {"score": Additive(draw(16, dtype=dtype, seed=5)), "weigh": Sigmoid(), "mask": Causal()},
    "sparsemax": lambda dtype: {"weigh": Sparsemax()},
}
kinds = pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)


def widen(terms: Any, dtype: torch.dtype) -> Any:
    """The same terms in float64, by the definitions."""
    wide = terms(dtype)
    if "score" in wide:
        wide["score"] = Additive(wide["score"].weight.double())
    return {**wide, "backend": "reference"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@kinds
def test_second_derivatives_by_default(terms, dtype):
    given = [x.requires_grad_() for x in rows(dtype=dtype)]
    exact = [x.detach().double().requires_grad_() for x in given]

    def twice(args: list[Tensor], **options: Any) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(curve(*args, **options), args, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in first), args)

    for ours, right in zip(twice(given, **terms(dtype)), twice(exact, **widen(terms, dtype)), strict=True):
        assert differ(ours, right) < (1e-4 if dtype == torch.float32 else 0.1)


@kinds
def test_transforms(terms):
    given, along = rows(5), rows(5)[::-1]
    ours_of, right_of = terms(torch.float32), widen(terms, torch.float32)
    transforms: dict[str, Any] = {
        "grad": lambda f: grad(f, argnums=1)(*given),
        "samples": lambda f: vmap(grad(f, argnums=1))(*given),
        "tangent": lambda f: jvp(f, tuple(given), tuple(along))[1],
        "hessian": lambda f: hessian(f, argnums=1)(*(x[:1, :1, :3] for x in given)),
    }
    for name, transform in transforms.items():
        ours = transform(lambda *args: curve(*args, **ours_of))
        right = transform(lambda *args: curve(*(x.double() for x in args), **right_of))
        assert differ(ours, right.double()) < 1e-4, name


@pytest.mark.parametrize("weigh", [Softmax(), Sigmoid(), Sparsemax()], ids=repr)
def test_backward_sees_what_a_score_drew(weigh):
    def differentiate(backend: str) -> list[Tensor]:
        given = [x.double().requires_grad_() for x in rows(5, 3)]
        torch.manual_seed(4)
        out = attend(*given, score=lambda a, b: functional.dropout(3 * a @ b.mT, 0.5), weigh=weigh, backend=backend)
        torch.rand(3, device="cuda")
        return [out, *torch.autograd.grad(out.square().sum(), given)]

    for ours, right in zip(differentiate("tiled"), differentiate("reference"), strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("weigh", [Softmax(), Relu(), Sigmoid(), Sparsemax()], ids=repr)
def test_a_bias_of_nan_shows(weigh):
    bias = torch.zeros(37, 37, device="cuda")
    bias[3, 5] = torch.nan
    for backend in ("fused", "tiled"):
        out = attend(*rows(), bias=Dense(bias), weigh=weigh, backend=backend)
        assert out[:, :, 3].isnan().all()
        assert not out[:, :, :3].isnan().any()


@pytest.mark.parametrize("kind", ["bilinear", "feature"])
def test_half_precision_of_wide_sums(kind):
    given = rows(61, dtype=torch.bfloat16)
    weight = draw(16, 16, dtype=torch.bfloat16, seed=7)

    def call(dtype: torch.dtype, backend: str) -> list[Tensor]:
        args = [x.detach().to(dtype).requires_grad_() for x in given]
        term = Bilinear(weight.to(dtype)) if kind == "bilinear" else Feature()
        out = attend(*args, score=term, backend=backend)
        return [out, *torch.autograd.grad(out.sum(), args)]

    results = zip(
        call(torch.bfloat16, "auto"),
        call(torch.bfloat16, "reference"),
        call(torch.float64, "reference"),
        strict=True,
    )
    for ours, eager, right in results:
        assert differ(ours, right) <= 3 * differ(eager, right) + 2**-8


def test_entmax_above_two():
    given = rows()
    assert "fused" not in str(explain(*given, weigh=Entmax(3.0))).split("not ")[0]
    with pytest.raises(RegardError, match="fused"):
        attend(*given, weigh=Entmax(3.0), backend="fused")
    ours = attend(*given, weigh=Entmax(3.0))
    assert differ(ours, attend(*(x.double() for x in given), weigh=Entmax(3.0), backend="reference")) < 1e-5


MASKS: dict[str, Any] = {
    "allowed": lambda: torch.ones(37, 37, dtype=torch.bool, device="cuda"),
    "lengths": lambda: torch.tensor([37, 30], device="cuda"),
    "short lengths": lambda: torch.tensor([37, 30], dtype=torch.int32, device="cuda"),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("backend", ["fused", "tiled"])
def test_a_mask_that_was_changed_is_noticed_or_was_copied(backend, kind):
    def differentiate(change: bool) -> list[Tensor]:
        given, held = [x.requires_grad_() for x in rows()], MASKS[kind]()
        out = attend(*given, mask=Allowed(held) if kind == "allowed" else Lengths(held), backend=backend)
        if change:
            held.zero_()
        return list(torch.autograd.grad(out.square().sum(), given))

    try:
        changed = differentiate(True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017
    else:
        assert backend == "fused", "tiled reads it again"
        for ours, right in zip(changed, differentiate(False), strict=True):
            torch.testing.assert_close(ours, right)
