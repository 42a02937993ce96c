"""What each layer must bear: compilers, copies, files, half precision, and being asked twice."""

from __future__ import annotations

import copy
import importlib.util
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import regard.layers
from regard.layers import (
    AdditiveAttention,
    AddNorm,
    AlibiBias,
    Attention,
    AttentionPooling,
    BilinearAttention,
    ConcatAttention,
    ConvLayers,
    CosineAttention,
    DecoderBlock,
    DenseBias,
    DotProductAttention,
    EncoderBlock,
    Floater,
    Grams,
    GRULayers,
    HardAttention,
    KernelRegression,
    LearnedAttention,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PositionalEncoding,
    PositionWiseFFN,
    RelativeBias,
    Rotary,
    SelfAttention,
    Spelling,
    TorchMultiHeadAttention,
    convolution_as_attention,
)
from regard.weigh import Entmax
from tests.wide import ALL, thin

D = 8
# the one layer that needs a package of its own
HAS_ODE = importlib.util.find_spec("torchdiffeq") is not None
LENS = torch.tensor([3, 5])


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))) / 2


def heads(**options) -> MultiHeadAttention:
    return MultiHeadAttention(D, D, D, D, 2, **options)


def three() -> tuple[Tensor, ...]:
    return draw(2, 4, D), draw(2, 5, D) + 0.1, draw(2, 5, D) - 0.1, LENS


def one() -> tuple[Tensor, ...]:
    return draw(2, 5, D), LENS


class Biased(nn.Module):
    """A bias layer with the attention that it is for."""

    def __init__(self, bias: nn.Module) -> None:
        super().__init__()
        self.bias, self.attention = bias, heads()

    def forward(self, X: Tensor) -> Tensor:
        out: Tensor = self.attention(X, X, X, bias=self.bias())
        return out


class Turned(nn.Module):
    """Rotary, on rows that have heads."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary, self.scale = Rotary(D), nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rotary(x * self.scale)
        return out


class Summed(nn.Module):
    """AddNorm around a sublayer."""

    def __init__(self) -> None:
        super().__init__()
        self.add, self.dense = AddNorm(D), nn.Linear(D, D)

    def forward(self, X: Tensor) -> Tensor:
        out: Tensor = self.add(X, self.dense)
        return out


Make = Callable[[], nn.Module]
Inputs = Callable[[], tuple[Tensor, ...]]
LAYERS: dict[str, tuple[Make, Inputs]] = {
    "AdditiveAttention": (lambda: AdditiveAttention(D, D, 6, 0.1), three),
    "DotProductAttention": (lambda: DotProductAttention(0.1), three),
    "BilinearAttention": (lambda: BilinearAttention(D, D, 0.1), three),
    "CosineAttention": (lambda: CosineAttention(0.1, scale=2.0, learns_scale=True), three),
    "ConcatAttention": (lambda: ConcatAttention(D, D, 0.1), three),
    "LearnedAttention": (lambda: LearnedAttention("gaussian", D, 0.1), three),
    "entmax weights": (lambda: AdditiveAttention(D, D, 6, weigh=Entmax()), three),
    "MultiHeadAttention": (lambda: heads(dropout=0.1, bias=True), three),
    "TorchMultiHeadAttention": (lambda: TorchMultiHeadAttention(D, D, D, D, 2, 0.1, True), three),
    "grouped heads": (lambda: heads(num_key_heads=1), three),
    "additive heads": (lambda: heads(score="additive"), three),
    "SelfAttention": (lambda: SelfAttention(D, 2, 0.1), one),
    "HardAttention": (lambda: HardAttention(AdditiveAttention(D, D, 6)), three),
    "HardAttention straight-through": (lambda: HardAttention(how="straight-through"), three),
    "KernelRegression": (KernelRegression, lambda: (draw(6), draw(6, 4), draw(6, 4) + 1)),
    "PositionalEncoding": (lambda: PositionalEncoding(D, 0.1), lambda: one()[:1]),
    "LearnedPositionalEncoding": (lambda: LearnedPositionalEncoding(D, 0.1, max_len=9), lambda: one()[:1]),
    **({"Floater": (lambda: Floater(D, 0.1), lambda: one()[:1])} if HAS_ODE else {}),
    "Rotary": (Turned, lambda: (draw(2, 3, 5, D),)),
    "RelativeBias": (lambda: Biased(RelativeBias(2, 8, 6)), lambda: one()[:1]),
    "AlibiBias": (lambda: Biased(AlibiBias(2, learns=True)), lambda: one()[:1]),
    "DenseBias": (lambda: Biased(DenseBias(2, 5, 5)), lambda: one()[:1]),
    "PositionWiseFFN": (lambda: PositionWiseFFN(D, 10, 7, 0.1), lambda: one()[:1]),
    "AddNorm": (Summed, lambda: one()[:1]),
    "EncoderBlock": (lambda: EncoderBlock(heads(), D, 10, 0.1), one),
    "pre-norm": (lambda: EncoderBlock(heads(), D, 10, 0.1, norm_first=True), one),
    "DecoderBlock": (lambda: DecoderBlock(heads(), heads(), D, 10, 0.1), lambda: (draw(2, 4, D), *one())),
    "AttentionPooling": (lambda: AttentionPooling(D, dropout=0.1), one),
    "AttentionPooling hard": (lambda: AttentionPooling(D, "hard"), one),
    "GRULayers": (lambda: GRULayers(D, 2, 0.1), one),
    "ConvLayers": (lambda: ConvLayers(D, 2, 0.1), one),
    "Grams": (lambda: Grams(30, D), lambda: (torch.tensor([[[3, 1, 8], [7, 0, 0], [0, 0, 0]]]),)),
    "Spelling": (lambda: Spelling(9, D, 0.1), lambda: (torch.tensor([[[3, 1, 8], [7, 0, 0], [0, 0, 0]]]),)),
    "ConvolutionAttention": (
        lambda: convolution_as_attention(nn.Conv2d(2, 3, 3, padding=1)),
        lambda: (draw(1, 2, 4, 5),),
    ),
}


def make(name: str, **to) -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    build, inputs = LAYERS[name]
    layer = build().to(**to)
    with torch.no_grad():
        for parameter in layer.parameters():
            # layers that start at zero would hide what they do
            parameter.add_(0.05 * torch.randn_like(parameter))
    rows = [x.to(**to) if x.is_floating_point() else x for x in inputs()]
    return layer, rows


def test_every_public_layer_is_here():
    made = {type(module) for name in LAYERS for module in make(name)[0].modules()}
    public = [getattr(regard.layers, name) for name in regard.layers.__all__]
    layers = {x for x in public if isinstance(x, type) and issubclass(x, nn.Module) and (HAS_ODE or x is not Floater)}
    # the parent and the interface have nothing to run
    assert layers - made == {Attention, regard.layers.AttentionDecoder}


def differentiate(layer: Callable[..., Tensor], parameters: list[Tensor], rows: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in rows]
    out = layer(*leaves)
    wanted = [x for x in (*leaves, *parameters) if x.requires_grad]
    grads = torch.autograd.grad(
        out, wanted, torch.cos(torch.arange(out.numel())).view_as(out).to(out), allow_unused=True
    )
    return [out.detach(), *(x for x in grads if x is not None)]


@pytest.mark.parametrize("training", [True, False] if ALL else [True], ids=lambda yes: "train" if yes else "eval")
@pytest.mark.parametrize("name", thin(LAYERS, 4))
def test_compile_makes_one_graph(name, training):
    if name == "GRULayers":
        pytest.skip("torch.compile does not follow a GRU")
    layer, rows = make(name)
    layer.train(training)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found = []
    for call in (compiled, layer):
        torch.manual_seed(1)
        found.append(differentiate(call, list(layer.parameters()), rows))
    for one_way, other in zip(*found, strict=True):
        torch.testing.assert_close(one_way, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_a_file_holds_the_layer(name):
    layer, rows = make(name)
    layer.eval()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    torch.manual_seed(5)
    other = LAYERS[name][0]().eval()
    missing = other.load_state_dict(torch.load(file, weights_only=True))
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    assert torch.equal(layer(*rows), other(*rows))


@pytest.mark.parametrize("name", LAYERS)
def test_a_copy_is_the_same_and_its_own(name):
    layer, rows = make(name)
    layer.eval()
    before = layer(*rows)
    other = copy.deepcopy(layer)
    assert torch.equal(before, other(*rows))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    assert torch.equal(before, layer(*rows))


@pytest.mark.parametrize("name", LAYERS)
def test_evaluation_twice_gives_the_same_bits(name):
    layer, rows = make(name)
    layer.eval()
    assert torch.equal(layer(*rows), layer(*rows))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_half_precision(name, dtype):
    layer, rows = make(name, dtype=dtype)
    layer.eval()
    out = layer(*rows)
    assert out.dtype == dtype
    exact = copy.deepcopy(layer).double()(*(x.double() if x.is_floating_point() else x for x in rows))
    if "Hard" not in name:
        # the numbers of one dtype, a few roundings apart
        assert (out.double() - exact).norm() <= 8 * torch.finfo(dtype).eps * exact.norm()
    differentiate(layer, list(layer.parameters()), rows)


SHOWN = [name for name in LAYERS if isinstance(make(name)[0], Attention)]


@pytest.mark.parametrize("name", SHOWN)
def test_weights_may_be_seen(name):
    layer, rows = make(name)
    layer.eval()
    before = differentiate(layer, list(layer.parameters()), rows)
    layer(*rows)
    weights = layer.attention_weights
    assert weights is not None
    assert not weights.requires_grad
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    after = differentiate(layer, list(layer.parameters()), rows)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
