"""Attention by one score: equal to the textbook's formula, with its parameters, and never n×m unless asked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard import RegardError
from regard.layers.multihead import MultiHeadAttention
from regard.layers.scored import (
    AdditiveAttention,
    BilinearAttention,
    ConcatAttention,
    CosineAttention,
    DotProductAttention,
    LearnedAttention,
    masked_softmax,
)  # fmt: skip
from regard.weigh import Sparsemax
from tests.layers import textbook

LENS = {
    "none": None,
    "one each": torch.tensor([2, 5, 7]),
    "one per query": torch.tensor([[1, 2, 7], [3, 3, 3], [5, 6, 1]]),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    noise = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=noise, dtype=torch.float64).requires_grad_()


def rows(query: int = 4, key: int = 4) -> list[Tensor]:
    return [draw(3, 3, query), draw(3, 7, key, seed=1), draw(3, 7, 5, seed=2)]


def assert_same(one: nn.Module, other: nn.Module, inputs: list[Tensor], lens: Tensor | None) -> None:
    """Outputs, weights and all gradients."""
    found, wanted = one(*inputs, lens), other(*inputs, lens)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.attention_weights, other.attention_weights.detach(), rtol=1e-12, atol=1e-12)
    names = [name for name, _ in one.named_parameters()]
    assert names == [name for name, _ in other.named_parameters()]
    leaves = [[*inputs, *layer.parameters()] for layer in (one, other)]
    pulled = torch.sin(torch.arange(wanted.numel(), dtype=torch.float64)).view_as(wanted)
    grads = [torch.autograd.grad(out, x, pulled) for out, x in zip((found, wanted), leaves, strict=True)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("lens", LENS)
def test_additive_is_the_textbooks(lens):
    torch.manual_seed(0)
    saved = textbook.Additive(6, 4, 8).double()
    layer = AdditiveAttention(6, 4, 8, dropout=0.1).double().eval()
    layer.load_state_dict(saved.state_dict())
    assert_same(layer, saved, rows(4, 6), LENS[lens])


@pytest.mark.parametrize("lens", LENS)
def test_dot_product_is_the_textbooks(lens):
    assert_same(DotProductAttention(), textbook.DotProduct(), rows(), LENS[lens])


class ByFormula(nn.Module):
    """Any score written out."""

    def __init__(self, layer: nn.Module, score) -> None:
        super().__init__()
        for name, parameter in layer.named_parameters():
            holder = self
            *path, last = name.split(".")
            for part in path:
                holder.add_module(part, nn.Module())
                holder = holder.get_submodule(part)
            holder.register_parameter(last, nn.Parameter(parameter.detach().clone()))
        self.score = score

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, lens: Tensor | None) -> Tensor:
        self.attention_weights = textbook.masked_softmax(self.score(self, queries, keys), lens)
        return torch.bmm(self.attention_weights, values)


def by_cosine(layer: nn.Module, queries: Tensor, keys: Tensor) -> Tensor:
    return layer.scale * nn.functional.cosine_similarity(queries.unsqueeze(2), keys.unsqueeze(1), -1)


def by_concat(layer: nn.Module, queries: Tensor, keys: Tensor) -> Tensor:
    pairs = torch.cat([queries.unsqueeze(2).expand(-1, -1, 7, -1), keys.unsqueeze(1).expand(-1, 3, -1, -1)], -1)
    return nn.functional.leaky_relu(pairs @ torch.cat([layer.w_q.weight[0], layer.w_k.weight[0]]), 0.2)


def by_distance(layer: nn.Module, queries: Tensor, keys: Tensor) -> Tensor:
    return -((queries.unsqueeze(2) - keys.unsqueeze(1)) * layer.score_width[0]).square().sum(-1) / 2


FORMULAS = {
    "bilinear": (lambda: BilinearAttention(6, 4), lambda s, q, k: torch.einsum("bid,dc,bjc->bij", q, s.W, k), (4, 6)),
    "cosine": (lambda: CosineAttention(scale=3.0, learns_scale=True), by_cosine, (4, 4)),
    "concat": (lambda: ConcatAttention(6, 4), by_concat, (4, 6)),
    "learned": (lambda: LearnedAttention("gaussian", 4), by_distance, (4, 4)),
}


@pytest.mark.parametrize("lens", LENS)
@pytest.mark.parametrize("name", FORMULAS)
def test_others_are_their_formulas(name, lens):
    make, score, widths = FORMULAS[name]
    torch.manual_seed(0)
    layer = make().double()
    assert_same(layer, ByFormula(layer, score).double(), rows(*widths), LENS[lens])


@pytest.mark.parametrize("lens", LENS)
def test_masked_softmax(lens):
    scores = draw(3, 3, 7)
    torch.testing.assert_close(masked_softmax(scores, LENS[lens]), textbook.masked_softmax(scores, LENS[lens]))


def test_masked_softmax_of_nothing_is_nothing():
    assert masked_softmax(torch.ones(2, 1, 3), torch.tensor([0, 3]))[0].eq(0).all()


def test_sparse_weights_in_any_layer():
    layer = AdditiveAttention(4, 4, 8, weigh=Sparsemax()).double()
    layer(*rows())
    assert layer.attention_weights is not None
    assert (layer.attention_weights == 0).any()


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    layer = DotProductAttention(dropout=0.5)
    inputs = [x.float() for x in rows()]
    assert not torch.equal(layer(*inputs), layer(*inputs))
    # weights are shown before dropout, as in the textbook
    assert layer.attention_weights.sum(-1).allclose(torch.ones(3, 3))
    layer.eval()
    assert torch.equal(layer(*inputs), layer(*inputs))


# --- the look at the weights ------------------------------------------------------------------------------------------


def test_weights_are_those_of_the_call_even_after_a_step():
    layer = AdditiveAttention(4, 4, 8).double()
    out = layer(*rows())
    out.sum().backward()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(torch.bmm(layer.attention_weights, rows()[2].detach()), out.detach())


def test_a_look_changes_nothing():
    torch.manual_seed(0)
    layer, inputs = AdditiveAttention(4, 4, 8).double(), rows()
    grads = []
    for looks in (False, True):
        out = layer(*inputs)
        if looks:
            assert layer.attention_weights.requires_grad is False
        grads.append([out, *torch.autograd.grad(out.sum(), [*inputs, *layer.parameters()])])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    assert layer.attention_weights is layer.attention_weights


def test_a_dense_bias_is_not_copied():
    layer = MultiHeadAttention(4, 4, 4, 4, 2)
    rows, bias = torch.randn(1, 50, 4), torch.randn(2, 50, 50)
    layer(rows, rows, rows, bias=bias)
    assert layer._last_call.bias.data_ptr() == bias.data_ptr()
    bias.zero_()
    with pytest.raises(RegardError, match="changed in place"):
        _ = layer.attention_weights


def test_a_module_as_score_is_watched():
    score = nn.Bilinear(2, 2, 1)

    class Score(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = score

        def forward(self, query: Tensor, key: Tensor) -> Tensor:
            return (query @ self.inner.weight[0]) @ key.mT

    layer = MultiHeadAttention(4, 4, 4, 4, 2, score=Score())
    layer(*[torch.randn(1, 5, 4)] * 3)
    with torch.no_grad():
        score.weight.add_(1.0)
    with pytest.raises(RegardError, match="changed in place"):
        _ = layer.attention_weights


def test_nothing_is_kept_where_nobody_looks():
    layer = DotProductAttention()
    layer.shows_weights = False
    layer(*rows())
    assert layer._last_call is None
    assert layer.attention_weights is None


def test_nothing_to_see_before_a_call():
    assert DotProductAttention().attention_weights is None


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor has that anything makes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        found = out if isinstance(out, tuple | list) else [out]
        self.count = max([self.count, *(x.untyped_storage().nbytes() // 4 for x in found if isinstance(x, Tensor))])
        return out


def test_a_forward_pass_holds_no_weights():
    layer = DotProductAttention(weigh=Sparsemax())
    inputs = [torch.randn(1, 2000, 4) for _ in range(3)]
    with Largest() as largest:
        layer(*inputs)
    assert largest.count < 2000 * 2000 / 4
    with largest:
        assert layer.attention_weights.shape == (1, 2000, 2000)
    assert largest.count >= 2000 * 2000


def test_autocast():
    layer = AdditiveAttention(4, 4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(*(x.detach().float() for x in rows()))
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), layer(*(x.detach().float() for x in rows())), rtol=0.05, atol=0.05)
    # one of them is half precision already
    query, key, value = (x.detach().float() for x in rows())
    with torch.autocast("cpu", torch.bfloat16):
        assert DotProductAttention()(query, key.bfloat16(), value).dtype == torch.bfloat16
    with pytest.raises(RegardError, match="share one dtype"):
        DotProductAttention()(query, key, value.double())
