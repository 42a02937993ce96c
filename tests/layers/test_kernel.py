"""KernelRegression against the textbook's class, written out, and its gradient by the formula."""

import copy

import pytest
import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.layers.kernel import KernelRegression


class Textbook(nn.Module):
    """NWKernelRegression as the textbook has it."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(1))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        queries = queries.repeat_interleave(keys.shape[1]).reshape((-1, keys.shape[1]))
        self.attention_weights = nn.functional.softmax(-(((queries - keys) * self.w) ** 2) / 2, dim=1)
        return torch.bmm(self.attention_weights.unsqueeze(1), values.unsqueeze(-1)).reshape(-1)


def draw(n: int, m: int, *, shared: bool, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    noise = torch.Generator().manual_seed(7)
    shape = (m,) if shared else (n, m)
    return tuple(torch.randn(s, generator=noise, dtype=dtype) for s in ((n,), shape, shape))


@pytest.fixture
def layer() -> KernelRegression:
    layer = KernelRegression().double()
    nn.init.constant_(layer.w, 1.7)
    return layer


def test_a_row_of_keys_for_each_query_is_the_textbook(layer):
    book = Textbook().double()
    assert list(layer.state_dict()) == list(book.state_dict()) == ["w"]
    layer.load_state_dict(book.state_dict())
    queries, keys, values = draw(5, 7, shared=False)
    out, expected = layer(queries, keys, values), book(queries, keys, values)
    torch.testing.assert_close(out, expected, rtol=1e-13, atol=1e-14)
    assert layer.attention_weights.shape == (5, 7)
    torch.testing.assert_close(layer.attention_weights, book.attention_weights.detach(), rtol=1e-13, atol=1e-14)


def test_shared_keys_are_the_same_row_for_all(layer):
    queries, keys, values = draw(5, 7, shared=True)
    out = layer(queries, keys, values)
    weights = layer.attention_weights
    assert weights.shape == (5, 7)
    rows = layer(queries, keys.expand(5, 7), values.expand(5, 7))
    torch.testing.assert_close(out, rows, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(weights, layer.attention_weights, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(weights @ values, out.detach(), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("shared", [True, False])
def test_the_gradient_of_the_width_is_the_formula(layer, shared):
    queries, keys, values = draw(5, 7, shared=shared)
    layer(queries, keys, values).square().sum().backward()
    # d out / d w = Σ_j a_j (s_j − Σ a s) v_j with s = −w (q − k)²
    apart = queries[:, None] - keys
    w = layer.w.item()
    a = torch.softmax(-0.5 * (apart * w) ** 2, -1)
    s = -w * apart**2
    out = (a * values).sum(-1)
    derivative = (a * (s - (a * s).sum(-1, keepdim=True)) * values).sum(-1)
    assert layer.w.grad.item() == pytest.approx((2 * out * derivative).sum().item(), rel=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_gradcheck(layer, shared):
    queries, keys, values = (x.requires_grad_() for x in draw(3, 5, shared=shared))

    def call(w, *rows):
        return torch.func.functional_call(layer, {"w": w}, rows)

    assert torch.autograd.gradcheck(call, (layer.w.detach().requires_grad_(), queries, keys, values))


def test_the_sign_of_the_width_means_nothing(layer):
    rows = draw(5, 7, shared=True)
    out = layer(*rows)
    nn.init.constant_(layer.w, -1.7)
    assert torch.equal(layer(*rows), out)


def test_training_lowers_the_textbooks_loss():
    torch.manual_seed(1)
    layer = KernelRegression()
    x = (5 * torch.rand(50)).sort().values
    y = 2 * torch.sin(x) + x**0.8 + 0.5 * torch.randn(50)
    others = ~torch.eye(50, dtype=torch.bool)
    keys, values = x.expand(50, 50)[others].view(50, 49), y.expand(50, 50)[others].view(50, 49)
    descent = torch.optim.SGD(layer.parameters(), lr=0.5)
    losses = []
    for _ in range(5):
        descent.zero_grad()
        loss = (layer(x, keys, values) - y).square().sum()
        loss.backward()
        descent.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_weights_are_of_the_call_not_of_a_later_width(layer):
    assert layer.attention_weights is None
    queries, keys, values = draw(5, 7, shared=False)
    layer(queries, keys, values)
    expected = torch.softmax(-0.5 * ((queries[:, None] - keys) * 1.7) ** 2, -1)
    nn.init.constant_(layer.w, 9.0)
    torch.testing.assert_close(layer.attention_weights, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(layer, dtype):
    rows = draw(5, 7, shared=True, dtype=dtype)
    expected = layer(*(x.double() for x in rows))
    layer = copy.deepcopy(layer).to(dtype)
    out = layer(*rows)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=3e-2, atol=3e-2)


def test_no_queries(layer):
    rows = torch.zeros(0, dtype=torch.float64)
    keys = torch.ones(3, dtype=torch.float64)
    assert layer(rows, keys, keys).shape == (0,)
    assert layer(rows, keys.expand(0, 3), keys.expand(0, 3)).shape == (0,)


ONE, MANY = torch.zeros(3, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (([0.0], ONE, ONE), "KernelRegression queries must be a tensor, got list."),
        (
            (ONE, ONE.float(), ONE),
            "KernelRegression is in float64 and keys in float32: bring both to one, as by layer.to(keys.dtype).",
        ),
        (
            (MANY, ONE, ONE),
            "KernelRegression queries must be (queries,), got shape (3, 4): points of several features are"
            " regard.models.NadarayaWatson's.",
        ),
        (
            (ONE, MANY[:2], MANY[:2]),
            "KernelRegression keys must be (keys,), or (queries, keys) with queries=3, got shape (2, 4).",
        ),
        (
            (ONE, MANY, ONE),
            "KernelRegression must have one value for each key: keys are (3, 4), values (3,).",
        ),
    ],
)
def test_wrong_inputs(layer, rows, message):
    with pytest.raises(RegardError) as caught:
        layer(*rows)
    assert str(caught.value) == message
