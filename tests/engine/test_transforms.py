"""`torch.func` and forward-mode derivatives of a call, against the same transform of plain code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

from regard import attend
from regard.bias import Dense
from regard.engine.run import OBSERVERS
from regard.layers import DotProductAttention
from regard.mask import Causal, Lengths
from regard.score import Additive
from regard.weigh import Hard, Sigmoid
from tests.primes import noise
from tests.tolerances import assert_all_close, assert_close

ROWS = noise(2, 2, 5, 3, seed=1), noise(2, 2, 7, 3, seed=2), noise(2, 2, 7, 3, seed=3)
WEIGHT = noise(3, seed=4)
# derivatives of derivatives have many numbers
SMALL = [x[0, :1, :2] for x in ROWS]

KINDS: dict[str, Any] = {
    "dot": lambda query, key, value, weight, **given: attend(query * weight, key, value, **given),
    "additive": lambda query, key, value, weight, **given: attend(
        query, key, value, score=Additive(weight), mask=Causal(), weigh=Sigmoid(), bias=Dense(weight[:1]), **given
    ),
}


def write_out(kind: str) -> Any:
    """The same in plain code."""

    def compute(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        if kind == "dot":
            return torch.softmax((query * weight) @ key.mT / query.shape[-1] ** 0.5, -1) @ value
        scores = (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) * weight).sum(-1) + weight[:1]
        n, m = scores.shape[-2:]
        return (torch.sigmoid(scores) * torch.ones(n, m).tril(m - n)) @ value

    return compute


def square(function: Any) -> Any:
    """A number that is curved in all that the function takes."""
    return lambda *args: function(*args).square().sum()


cases = pytest.mark.parametrize("kind", KINDS)
backends = pytest.mark.parametrize("backend", ["auto", "tiled", "reference"])


def get(kind: str, backend: str) -> tuple[Any, Any]:
    return (lambda *args: KINDS[kind](*args, backend=backend)), write_out(kind)


def assert_same(transform: Any, ours: Any, plain: Any, *args: Any) -> None:
    found, expected = (transform(function)(*args) for function in (ours, plain))
    found, expected = ([*x] if isinstance(x, tuple) else [x] for x in (found, expected))
    assert_all_close(found, expected, [f"result {at}" for at in range(len(found))])


@cases
@backends
def test_gradients(kind, backend):
    args = *ROWS, WEIGHT
    assert_same(lambda f: grad(square(f), argnums=(0, 1, 2, 3)), *get(kind, backend), *args)
    # another gradient outside, of a tensor that was closed over
    weight = WEIGHT.clone().requires_grad_()
    inner = [grad(lambda key, f=f: square(f)(ROWS[0], key, ROWS[2], weight))(ROWS[1]) for f in get(kind, backend)]
    outer = [torch.autograd.grad(x.square().sum(), weight)[0] for x in inner]
    assert_close(*outer)


@cases
@backends
def test_tangents(kind, backend):
    args, along = (*ROWS, WEIGHT), tuple(noise(*x.shape, seed=9) for x in (*ROWS, WEIGHT))
    assert_same(lambda f: lambda *given: jvp(f, given, along), *get(kind, backend), *args)
    with forward_ad.dual_level():
        key = forward_ad.make_dual(ROWS[1], along[1])
        found = [forward_ad.unpack_dual(f(ROWS[0], key, ROWS[2], WEIGHT)).tangent for f in get(kind, backend)]
        assert_close(*found)


@cases
@backends
def test_samples(kind, backend):
    weights = torch.stack([WEIGHT, 2 * WEIGHT])
    assert_same(lambda f: vmap(f, in_dims=(0, 0, 0, None)), *get(kind, backend), *ROWS, WEIGHT)
    assert_same(lambda f: vmap(f, in_dims=(None, None, None, 0)), *get(kind, backend), *ROWS, weights)
    assert_same(lambda f: vmap(f, in_dims=(1, 1, 1, None), out_dims=1), *get(kind, backend), *ROWS, WEIGHT)
    # a gradient for each sample, and samples of samples
    assert_same(
        lambda f: vmap(grad(square(f), argnums=(0, 3)), in_dims=(0, 0, 0, None)), *get(kind, backend), *ROWS, WEIGHT
    )
    assert_same(
        lambda f: vmap(vmap(f, in_dims=(None, None, None, 0))),
        *get(kind, backend),
        *ROWS,
        weights.expand(2, 2, 3),
    )


@cases
@backends
def test_curvature(kind, backend):
    args = *SMALL, WEIGHT
    transforms = {
        "hessian": lambda f: hessian(square(f), argnums=1),
        "forward twice": lambda f: jacfwd(jacfwd(f, argnums=1)),
        "backward twice": lambda f: jacrev(jacrev(f, argnums=3)),
        "third": lambda f: grad(square(grad(square(grad(square(f))), argnums=1)), argnums=3),
        "autograd's": lambda f: lambda *given: torch.autograd.functional.hessian(square(f), given)[0][1],
    }
    for name, transform in transforms.items():
        found, expected = (transform(f)(*args) for f in get(kind, backend))
        assert_close(found, expected, name)
        assert expected.any(), f"{name}: zeros prove nothing"


def test_each_sample_has_its_own_lengths():
    rows, lengths = noise(3, 2, 4, 3, seed=5), torch.tensor([[1], [4], [0]])
    found = vmap(lambda x, length: attend(x[None], x[None], x[None], mask=Lengths(length)))(rows, lengths)
    assert_close(found[:, 0], attend(rows, rows, rows, mask=Lengths(lengths[:, 0])))


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"weigh": Hard("sample")}], ids=["dropout", "draws"])
def test_samples_draw_alike_or_not(options):
    rows = noise(1, 1, 40, 3, seed=6).expand(3, 1, 1, 40, 3)

    def call(randomness: str) -> Tensor:
        return vmap(lambda x: attend(x, x, x, **options), randomness=randomness)(rows)

    same, different = call("same"), call("different")
    assert torch.equal(same[0], same[1])
    assert not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="randomness"):
        call("error")
    # what is drawn going back is what was drawn before
    torch.manual_seed(3)
    value = rows[0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(attend(rows[0], rows[0], value, **options).square().sum(), value)
    torch.manual_seed(3)
    found = grad(lambda x: attend(rows[0], rows[0], x, **options).square().sum())(rows[0])
    assert_close(found, expected)


class Scaled(nn.Module):
    """A score that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(WEIGHT.clone())

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return (query * self.weight) @ key.mT


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = Scaled()

    def forward(self, query: Tensor) -> Tensor:
        return attend(query, ROWS[1], ROWS[2], score=self.score)


def test_a_module_as_a_score_learns():
    layer = Layer()
    found = grad(lambda given: functional_call(layer, given, ROWS[0]).square().sum())(dict(layer.named_parameters()))
    (expected,) = torch.autograd.grad(layer(ROWS[0]).square().sum(), layer.score.weight)
    assert_close(found["score.weight"], expected)
    # constants may be closed over as ever
    constant = torch.tensor(2.0, dtype=torch.float64)
    found, expected = (
        transform(lambda query: attend(query, *ROWS[1:], score=lambda q, k: constant * q @ k.mT).square().sum())
        for transform in (grad, lambda f: lambda x: torch.autograd.functional.jacobian(f, x))
    )
    assert_close(found(ROWS[0]), expected(ROWS[0]))


def test_observers_are_told_once():
    told: list[Any] = []
    OBSERVERS.append(lambda *given: told.append(given))
    try:
        grad(lambda query: attend(query, *SMALL[1:]).square().sum())(SMALL[0])
    finally:
        OBSERVERS.pop()
    assert len(told) == 1


def test_no_samples_at_all():
    assert vmap(lambda x: attend(x, x, x))(torch.zeros(0, 5, 3)).shape == (0, 5, 3)
    empty = jacrev(lambda x: attend(x, *SMALL[1:]))(SMALL[0][:, :0])
    assert empty.shape == (1, 0, 3, 1, 0, 3)


def test_a_layer_with_lengths_of_each_sample():
    layer, rows, lengths = DotProductAttention(0.0), noise(3, 1, 5, 4, seed=8), torch.tensor([[2], [5], [4]])
    found = vmap(lambda x, length: layer(x, x, x, length))(rows, lengths)
    assert_close(found[:, 0], layer(rows[:, 0], rows[:, 0], rows[:, 0], lengths[:, 0]))


class Shared(nn.Module):
    """One layer by two names."""

    def __init__(self) -> None:
        super().__init__()
        self.left = self.right = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.left(query) @ self.right(key).mT


def test_a_module_is_left_as_it_was():
    score = Shared()
    found = grad(lambda x: attend(x, *SMALL[1:], score=score).square().sum())(SMALL[0])
    query = SMALL[0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(attend(query, *SMALL[1:], score=score).square().sum(), query)
    assert_close(found, expected)
    assert isinstance(score.left.weight, nn.Parameter)
    assert score.left.weight.requires_grad
