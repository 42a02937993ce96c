"""Convolution as self-attention: https://arxiv.org/abs/1911.03584."""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.bias import Quadratic
from regard.core import RegardError
from regard.layers.attention import Attention
from regard.layers.inputs import check_dtype

# the neighbours of the pixel that a head looks at have a weight of e^−46 ≈ 1e-20 each: less than float64 can tell
ALPHA = 46.0


def convolution_as_attention(conv: nn.Conv2d, alpha: float = ALPHA) -> ConvolutionAttention:
    """Self-attention that gives what the convolution gives: a head for each weight of the kernel's grid.

    >>> conv = nn.Conv2d(3, 4, kernel_size=3, padding=1)
    >>> images = torch.linspace(-1, 1, 150).view(2, 3, 5, 5)
    >>> bool((convolution_as_attention(conv)(images) - conv(images)).abs().max() < 1e-6)
    True

    The layer has copies of the convolution's weights, in its dtype and on its device. At `alpha` → ∞ they are the same
    function; each head takes e^−alpha of its pixel's four neighbours with it.
    """
    return ConvolutionAttention(conv, alpha)


class ConvolutionAttention(Attention):
    """Self-attention of pixels that equals a convolution: heads score a step δ between pixels by −alpha·‖δ − centre‖².

    >>> layer = ConvolutionAttention(nn.Conv2d(1, 1, kernel_size=2, bias=False))
    >>> layer.centre.tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    >>> layer(torch.ones(1, 1, 3, 3)).shape, layer.attention_weights.shape
    (torch.Size([1, 1, 2, 2]), torch.Size([1, 4, 9, 9]))

    Called as the convolution is, with (batch, channels, height, width) or without a batch. A pixel is a query and a
    key; those that `padding` adds are, too, so that the border comes out as that of the convolution. No score depends
    on what a pixel holds: one set of weights, (1, heads, pixels, pixels), serves the whole batch. Time grows with the
    square of the pixels, memory does not. `W_v` (heads, out_channels, in_channels / groups) and `bias` learn as those
    of the convolution; so may `alpha` (heads,) and `centre` (heads, 2), whose gradients are as small as e^−alpha.
    """

    def __init__(self, conv: nn.Conv2d, alpha: float = ALPHA) -> None:
        super().__init__()
        _check(conv, alpha)
        self.in_channels, self.out_channels, self.groups = conv.in_channels, conv.out_channels, conv.groups
        (down, right), self.stride = conv.dilation, conv.stride
        rows, columns = conv.kernel_size
        # how far the kernel reaches, and the pixel of that which stands in the middle (before it, where there is none)
        self.reach = down * (rows - 1) + 1, right * (columns - 1) + 1
        self.middle = down * ((rows - 1) // 2), right * ((columns - 1) // 2)
        self.padding = _list_padding(conv.padding, self.reach)
        self.padding_mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        weight = conv.weight.detach()
        # one slice of the kernel for each head
        slices = weight.permute(2, 3, 0, 1).reshape(rows * columns, self.out_channels, -1).clone()
        self.W_v = nn.Parameter(slices, requires_grad=conv.weight.requires_grad)
        steps = itertools.product(range(rows), range(columns))
        centre = [(row * down - self.middle[0], column * right - self.middle[1]) for row, column in steps]
        self.alpha = nn.Parameter(weight.new_full((rows * columns,), alpha))
        self.centre = nn.Parameter(weight.new_tensor(centre))
        bias = conv.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=bias.requires_grad)
        self.train(conv.training)

    def forward(
        self, images: Float[Tensor, "*batch in_channels height width"]
    ) -> Float[Tensor, "*batch out_channels rows columns"]:
        self._check_images(images)
        if images.ndim == 3:
            out: Tensor = self(images[None])[0]
            return out
        pixels = functional.pad(images, self.padding, self.padding_mode)
        batch, channels, height, width = pixels.shape
        # nothing to compare: position says all
        blank = pixels.new_zeros(1, 1, height * width, 1)
        heads = self.W_v.shape[0]
        values = pixels.permute(2, 3, 0, 1).reshape(1, 1, height * width, batch * channels)
        bias = Quadratic(height, width, self.alpha, self.centre)
        seen = self._attend(blank.expand(1, heads, -1, 1), blank, values, bias=bias)
        grid = seen.reshape(heads, height, width, batch, self.groups, -1)
        grid = grid[:, self._list_steps(height, 0)][:, :, self._list_steps(width, 1)]
        # attention is linear in its values: projected after it they are as many as there are pixels left
        slices = self.W_v.unflatten(1, (self.groups, -1))
        out = torch.einsum("hyxbgc,hgoc->bgoyx", grid, slices).flatten(1, 2)
        return out if self.bias is None else out + self.bias.view(-1, 1, 1).to(out.dtype)

    def _list_steps(self, size: int, axis: int) -> slice:
        """The pixels along an axis on which the kernel's middle comes to lie."""
        middle, rest = self.middle[axis], size - self.reach[axis]
        return slice(middle, middle + rest + 1, self.stride[axis])

    def _check_images(self, images: Tensor) -> None:
        if not isinstance(images, Tensor) or images.ndim not in (3, 4) or images.shape[-3] != self.in_channels:
            got = f"shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
            raise RegardError(
                f"ConvolutionAttention images must be (batch, in_channels={self.in_channels}, height, width),"
                f" got {got}."
            )
        left, right, top, bottom = self.padding
        size = images.shape[-2] + top + bottom, images.shape[-1] + left + right
        if size[0] < self.reach[0] or size[1] < self.reach[1]:
            raise RegardError(
                f"ConvolutionAttention images must be as large as the kernel's reach of {self.reach}: got {size} with"
                " padding."
            )
        check_dtype(self, images, "images")

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, heads={self.W_v.shape[0]}, stride={self.stride},"
            f" padding={self.padding}, groups={self.groups}"
        )


def _check(conv: nn.Conv2d, alpha: float) -> None:
    if not isinstance(conv, nn.Conv2d):
        raise RegardError(f"convolution_as_attention conv must be an nn.Conv2d, got {type(conv).__name__}.")
    if isinstance(conv.weight, nn.parameter.UninitializedParameter):
        raise RegardError("convolution_as_attention conv has no weights yet: call it on images once.")
    if not conv.weight.is_floating_point():
        kind = str(conv.weight.dtype).removeprefix("torch.")
        raise RegardError(f"convolution_as_attention conv must hold real floating-point weights, got {kind}.")
    if not 0 < alpha < float("inf"):
        raise RegardError(f"convolution_as_attention alpha must be finite and above zero, got {alpha}.")


def _list_padding(padding: str | tuple[int, ...], reach: tuple[int, int]) -> tuple[int, int, int, int]:
    """Pixels added on the left, on the right, above and below."""
    if not isinstance(padding, str):
        return padding[1], padding[1], padding[0], padding[0]
    # where the two sides cannot be equal, torch gives the far side more
    down, right = (reach[0] - 1, reach[1] - 1) if padding == "same" else (0, 0)
    return right // 2, right - right // 2, down // 2, down - down // 2
