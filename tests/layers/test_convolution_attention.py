"""Attention that is a convolution against torch.nn.Conv2d, and what the theorem's limit is for."""

import copy

import pytest
import torch
from torch import nn

from regard.core import RegardError
from regard.layers.convolution_attention import ConvolutionAttention, convolution_as_attention
from tests.tolerances import DIFFERENCES, assert_close

# 1e-6 in float32 is what the issue promises; both are of the largest number in the output
ALLOWED = {torch.float32: 1e-6, torch.float64: 1e-12}

SHAPES = {
    **{f"{k}×{k}": {"kernel_size": k, "padding": k // 2} for k in range(1, 8)},
    "2×5": {"kernel_size": (2, 5), "padding": (1, 0)},
    "no padding": {"kernel_size": 3},
    "more padding than kernel": {"kernel_size": (1, 2), "padding": (2, 3)},
    "valid": {"kernel_size": 3, "padding": "valid"},
    "same": {"kernel_size": 5, "padding": "same"},
    "same, even": {"kernel_size": (4, 2), "padding": "same"},
    "same, dilated": {"kernel_size": (2, 3), "padding": "same", "dilation": (3, 2)},
    "stride": {"kernel_size": 3, "padding": 1, "stride": 2},
    "stride past the kernel": {"kernel_size": 2, "padding": (1, 0), "stride": (3, 5)},
    "dilation": {"kernel_size": 3, "padding": 2, "dilation": (2, 3)},
    "stride and dilation": {"kernel_size": (3, 2), "padding": (2, 1), "dilation": (2, 1), "stride": (1, 2)},
    "groups": {"kernel_size": 3, "padding": 1, "groups": 2},
    "depthwise": {"kernel_size": 2, "groups": 4},
    "no bias": {"kernel_size": 3, "padding": 1, "bias": False},
    "reflect": {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"},
    "replicate": {"kernel_size": 3, "padding": (1, 2), "padding_mode": "replicate"},
    "circular": {"kernel_size": (3, 4), "padding": "same", "padding_mode": "circular"},
}


def make(dtype=torch.float64, channels=(4, 8), size=(7, 8), **options):
    conv = nn.Conv2d(*channels, **options, dtype=dtype)
    return conv, torch.randn(2, channels[0], *size, dtype=dtype)


def error(layer, conv, images):
    """The largest difference from the convolution in float64, of the largest number."""
    with torch.no_grad():
        exact = copy.deepcopy(conv).double()(images.double())
        out = layer(images)
    assert out.shape == exact.shape
    return ((out.double() - exact).abs().max() / exact.abs().max()).item()


# what torch says about an even kernel is true, and no fault
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES)
def test_it_is_the_convolution(options, dtype):
    conv, images = make(dtype, **options)
    assert error(convolution_as_attention(conv), conv, images) <= ALLOWED[dtype]


def test_interior_and_border_on_a_larger_image():
    conv, images = make(torch.float32, channels=(3, 5), size=(11, 13), kernel_size=5, padding=2)
    layer = convolution_as_attention(conv)
    with torch.no_grad():
        apart = (layer(images) - conv(images)).abs() / conv(images).abs().max()
    interior = apart[..., 2:-2, 2:-2]
    assert interior.max() <= 1e-6
    apart[..., 2:-2, 2:-2] = 0
    assert apart.max() <= 1e-6


def test_the_limit_is_needed():
    # each head takes e^−alpha of its pixel's neighbours with it
    conv, images = make(kernel_size=3, padding=1)
    errors = [error(convolution_as_attention(conv, alpha), conv, images) for alpha in (1.0, 4.0, 10.0, 16.0, 30.0)]
    assert errors[0] > 1e-1
    assert errors[2] > 1e-5
    assert errors[3] < 1e-5 < errors[2]
    for one, other, gap in zip(errors, errors[1:], (3, 6, 6, 14), strict=False):
        # falls about as e^−alpha does
        assert 0.1 < one / other / torch.tensor(float(gap)).exp() < 10


def test_scores_are_the_theorems():
    # one head an offset, each by −alpha·‖δ − Δ‖² on the padded image
    conv, images = make(size=(3, 4), kernel_size=(2, 3), padding=(0, 1))
    layer = convolution_as_attention(conv, alpha=0.7)
    layer(images)
    height, width = 3, 6
    weights = layer.attention_weights
    assert weights.shape == (1, 6, 18, 18)
    place = torch.tensor([(y, x) for y in range(height) for x in range(width)], dtype=torch.float64)
    for h, centre in enumerate((y, x) for y in (0, 1) for x in (-1, 0, 1)):
        step = place[None] - place[:, None] - torch.tensor(centre)
        assert_close(weights[0, h], torch.softmax(-0.7 * step.square().sum(-1), -1))


def test_a_step_of_descent_is_that_of_the_convolution():
    conv, images = make(kernel_size=(3, 2), padding=1, stride=2, groups=2)
    layer, target = convolution_as_attention(conv), torch.randn(2, 8, 4, 5, dtype=torch.float64)
    ours, theirs = images.clone().requires_grad_(), images.clone().requires_grad_()
    for module, x in ((layer, ours), (conv, theirs)):
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        (module(x) - target).square().sum().backward()
        optimiser.step()
    assert conv.weight.grad.abs().max() > 0.1
    slices = conv.weight.detach().permute(2, 3, 0, 1).reshape(6, 8, 2)
    assert_close(layer.W_v, slices)
    assert_close(layer.bias, conv.bias)
    assert_close(ours.grad, theirs.grad)
    assert error(layer, conv, images) < 1e-12


def test_position_learns_at_a_small_alpha():
    conv, images = make(size=(4, 3), kernel_size=2)
    layer = convolution_as_attention(conv, alpha=0.5)
    inputs = [p.detach().clone().requires_grad_() for p in (layer.alpha, layer.centre, layer.W_v)]

    def run(alpha, centre, slices):
        return torch.func.functional_call(layer, {"alpha": alpha, "centre": centre, "W_v": slices}, (images,))

    assert torch.autograd.gradcheck(run, inputs, **DIFFERENCES)
    layer(images).square().sum().backward()
    assert all(p.grad.abs().max() > 1e-3 for p in layer.parameters())


def test_an_image_without_a_batch():
    conv, images = make(kernel_size=3)
    layer = convolution_as_attention(conv)
    assert_close(layer(images[0]), conv(images[0]))


def test_the_layer_has_copies():
    conv, images = make(kernel_size=3)
    conv.weight.requires_grad_(False)
    layer = convolution_as_attention(conv.eval())
    before = layer(images)
    with torch.no_grad():
        conv.weight.zero_()
        conv.bias.zero_()
    assert torch.equal(layer(images), before)
    assert not layer.W_v.requires_grad
    assert layer.bias.requires_grad
    assert not layer.training


def test_state_and_copies():
    conv, images = make(kernel_size=3, padding=1)
    layer, other = convolution_as_attention(conv), convolution_as_attention(make(kernel_size=3, padding=1)[0])
    out = layer(images)
    assert list(layer.state_dict()) == ["W_v", "alpha", "centre", "bias"]
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(images), out)
    assert torch.equal(copy.deepcopy(layer)(images), out)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    conv, images = make(torch.float32, kernel_size=3, padding=1)
    assert error(convolution_as_attention(conv).to(dtype), conv, images.to(dtype)) < 2e-2


def test_autocast():
    conv, images = make(torch.float32, kernel_size=3, padding=1)
    layer = convolution_as_attention(conv)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, expected = layer(images), conv(images)
    assert out.dtype == expected.dtype == torch.bfloat16
    assert_close(out, expected)


def test_memory_does_not_grow_with_the_square_of_the_pixels():
    # 9 heads × 576² weights would be 11 MiB; the largest tensor of the forward and backward pass stays far below
    seen = []
    conv, images = make(torch.float32, channels=(1, 1), size=(24, 24), kernel_size=3)
    layer = convolution_as_attention(conv)

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            seen.extend(x.untyped_storage().nbytes() for x in [out] if isinstance(x, torch.Tensor))
            return out

    with Watch():
        layer(images).sum().backward()
    assert max(seen) < 4 * 2**20


@pytest.mark.parametrize(
    ("conv", "message"),
    [
        (nn.ConvTranspose2d(1, 1, 3), "conv must be an nn.Conv2d, got ConvTranspose2d."),
        (nn.Conv1d(1, 1, 3), "conv must be an nn.Conv2d, got Conv1d."),
        (nn.LazyConv2d(1, 3), "conv has no weights yet: call it on images once."),
        (
            nn.Conv2d(1, 1, 3, dtype=torch.complex64),
            "conv must hold real floating-point weights, got complex64.",
        ),
    ],
)
def test_other_layers_are_refused(conv, message):
    with pytest.raises(RegardError) as failure:
        convolution_as_attention(conv)
    assert str(failure.value) == f"convolution_as_attention {message}"


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("inf"), float("nan")])
def test_alpha_is_above_zero(alpha):
    with pytest.raises(RegardError) as failure:
        convolution_as_attention(nn.Conv2d(1, 1, 3), alpha)
    assert str(failure.value) == f"convolution_as_attention alpha must be finite and above zero, got {alpha}."


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            torch.zeros(1, 3, 5, 5),
            "ConvolutionAttention images must be (batch, in_channels=2, height, width), got shape (1, 3, 5, 5).",
        ),
        (
            torch.zeros(5, 5),
            "ConvolutionAttention images must be (batch, in_channels=2, height, width), got shape (5, 5).",
        ),
        ([0.0], "ConvolutionAttention images must be (batch, in_channels=2, height, width), got list."),
        (
            torch.zeros(1, 2, 5, 2),
            "ConvolutionAttention images must be as large as the kernel's reach of (5, 5): got (7, 4) with padding.",
        ),
        (
            torch.zeros(1, 2, 5, 5, dtype=torch.float64),
            "ConvolutionAttention is in float32 and images in float64: bring both to one, as by"
            " layer.to(images.dtype).",
        ),
    ],
)
def test_wrong_images(images, message):
    layer = ConvolutionAttention(nn.Conv2d(2, 1, 3, dilation=2, padding=1))
    with pytest.raises(RegardError) as failure:
        layer(images)
    assert str(failure.value) == message
