"""Linear layers of the same rows, in one product."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.modules import module

from regard.layers import MultiHeadAttention
from regard.layers.linear import _pays, apply_together


def make(*sizes: int, bias: bool = True) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(5, size, bias=bias, dtype=torch.float64) for size in sizes]


@pytest.fixture
def products(monkeypatch):
    """How many products were made."""
    made = []
    real = nn.functional.linear
    monkeypatch.setattr(nn.functional, "linear", lambda *given: made.append(1) or real(*given))
    return made


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("count", "num_products"), [(11, 1), (10, 3)])
def test_it_is_what_the_layers_make_one_by_one(bias, count, num_products, products):
    layers = make(2, 3, 6, bias=bias)
    rows = torch.randn(1, count, 5, dtype=torch.float64, requires_grad=True)
    found = apply_together(layers, rows)
    assert len(products) == num_products
    given = [rows, *(p for layer in layers for p in layer.parameters())]
    grads = torch.autograd.grad(sum(x.pow(2).sum() for x in found), given)
    wanted = [rows @ layer.weight.T + (layer.bias if bias else 0.0) for layer in layers]
    wanted_grads = torch.autograd.grad(sum(x.pow(2).sum() for x in wanted), given)
    for one, other in zip((*found, *grads), (*wanted, *wanted_grads), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "learns", "pays"), [(1536, True, True), (1536, False, False), (2**14, True, False)])
def test_a_gpu_that_learns_puts_small_weights_together_for_few_rows(size, learns, pays):
    rows = SimpleNamespace(shape=torch.Size((2, 5, 512)), is_cuda=True)
    with torch.set_grad_enabled(learns):
        assert _pays(rows, size) is pays


def test_layers_with_a_bias_and_without_are_called_one_by_one(products):
    layers = [*make(2), *make(3, bias=False)]
    assert [x.shape[-1] for x in apply_together(layers, torch.ones(9, 9, 5, dtype=torch.float64))] == [2, 3]
    assert len(products) == 2


@pytest.mark.parametrize("hook", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"])
def test_hooks_are_called(hook):
    layers, calls = make(2, 3), []
    getattr(layers[1], hook)(lambda *given: calls.append(1))
    rows = torch.ones(9, 9, 5, dtype=torch.float64, requires_grad=True)
    sum(x.sum() for x in apply_together(layers, rows)).backward()
    assert calls


@pytest.mark.parametrize(
    "hook",
    [
        module.register_module_forward_hook, module.register_module_forward_pre_hook,
        module.register_module_full_backward_hook, module.register_module_full_backward_pre_hook,
    ],
)  # fmt: skip
def test_hooks_of_all_modules_are_called(hook):
    layers, calls = make(2, 3), []
    handle = hook(lambda layer, *given: calls.append(layer))
    try:
        rows = torch.ones(9, 9, 5, dtype=torch.float64, requires_grad=True)
        sum(x.sum() for x in apply_together(layers, rows)).backward()
    finally:
        handle.remove()
    assert set(calls) == set(layers)


def test_a_forward_of_the_layers_own_is_called():
    # as `accelerate` puts one in place to bring the weights from elsewhere
    layers = make(2, 3)
    real = layers[1].forward
    layers[1].forward = lambda rows: 2 * real(rows)
    rows = torch.randn(9, 5, dtype=torch.float64)
    assert torch.equal(apply_together(layers, rows)[1], 2 * real(rows))


@pytest.mark.parametrize("own", [False, True], ids=["plain", "own forward"])
def test_it_is_one_graph(own):
    # a graph is kept without a look at what a layer has got since
    torch._dynamo.reset()
    layers, rows = make(2, 3), torch.randn(9, 5, dtype=torch.float64)
    if own:
        layers[1].forward = lambda rows: rows[:, :3]
    compiled = torch.compile(lambda x: apply_together(layers, x), backend="eager", fullgraph=True)
    for one, other in zip(compiled(rows), apply_together(layers, rows), strict=True):
        assert torch.equal(one, other)


def test_a_layer_of_another_kind_is_called():
    class Doubled(nn.Linear):
        def forward(self, rows):
            return 2 * super().forward(rows)

    torch.manual_seed(0)
    layers = [nn.Linear(5, 3), Doubled(5, 3)]
    rows = torch.randn(7, 5)
    assert torch.equal(apply_together(layers, rows)[1], layers[1](rows))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_to_itself_and_to_others_is_the_same_together(heads, monkeypatch):
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 8, 8, 8, 4, bias=True, num_key_heads=heads).double()
    rows, others = torch.randn(3, 9, 8, dtype=torch.float64), torch.randn(3, 11, 8, dtype=torch.float64)
    together = layer(rows, rows, rows), layer(rows, others, others)
    monkeypatch.setattr("regard.layers.multihead.multiply_together", lambda layers, x: None)
    apart = layer(rows, rows.clone(), rows.clone()), layer(rows, others, others.clone())
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 9, 8), (3, 0, 8)])
def test_no_rows_at_all_are_no_reason_to_fail(shape, monkeypatch):
    # as a GPU that learns does with few rows
    monkeypatch.setattr("regard.layers.linear._pays", lambda rows, size: True)
    rows = torch.zeros(shape)
    assert MultiHeadAttention(8, 8, 8, 8, 4)(rows, rows, rows).shape == shape
