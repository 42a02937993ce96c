"""The exponent of a Gaussian kernel as a score, as in Nadaraya–Watson regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from regard.core import Pair, Score, Sizes
from regard.core.pairs import Vjp


class Distance(Pair):
    """−½ Σ_f (w_f (q_f − k_f))², one feature at a time: differences first, so that nearby points stay apart."""

    def __init__(self, width: Tensor) -> None:
        self.tensors = (width,)
        # a tile and its running difference
        self.footprint = 2
        self.depth = 2 * max(width.shape[-1], 1)

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (width,) = tensors
        scores = query.new_zeros(())
        for f in range(query.shape[-1]):
            step = (query[..., f : f + 1] - key[..., None, :, f]) * width[:, None, f : f + 1]
            scores = scores + step * step
        return (-0.5 * scores).expand(*query.shape[:-1], key.shape[-2])

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (width,) = tensors
        scores = query.new_zeros(*query.shape[:-1], key.shape[-2])
        for f in range(query.shape[-1]):
            step = (query[..., f : f + 1] - key[..., None, :, f]).mul_(width[:, None, f : f + 1])
            scores.addcmul_(step, step, value=-0.5)
        return scores

    def vjp(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Vjp]:
        (width,) = tensors

        def backward(grad: Tensor) -> tuple[Tensor | None, ...]:
            dquery, dkey, dwidth = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(width)
            for f in range(query.shape[-1]):
                apart = query[..., f : f + 1] - key[..., None, :, f]
                scaled = grad * apart
                dquery[..., f], dkey[..., f] = -scaled.sum(-1), scaled.sum(-2)
                dwidth[:, f] = -scaled.mul_(apart).sum((0, -1, -2)).sum_to_size(width.shape[:1])
            square = (width * width)[:, None, :]
            return dquery.mul_(square), dkey.mul_(square), dwidth.mul_(width)

        return self.fill(query, key, *tensors), backward

    def expression(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        (width,) = tensors
        step = (query.unsqueeze(-2) - key.unsqueeze(-3)) * width[:, None, None, :]
        return -0.5 * (step * step).sum(-1)

    def gradients(self, query: Tensor, key: Tensor, grad: Tensor, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        (width,) = tensors
        apart = query.unsqueeze(-2) - key.unsqueeze(-3)
        scaled = grad.unsqueeze(-1) * apart
        square = (width * width)[:, None, :]
        dw = -(scaled * apart).sum((-2, -3)).sum_to_size(width.shape) * width
        return -scaled.sum(-2) * square, scaled.sum(-3) * square, dw


@dataclass(frozen=True, repr=False, eq=False)
class Gaussian(Score):
    """Gaussian kernel score −½‖(q − k)·w‖²: `width` is a number, a tensor of one, one per feature (d,), or (heads, d).

    >>> Gaussian(2.0)(torch.zeros(1, 1), torch.tensor([[0.0], [1.0]]))
    tensor([[-0., -2.]])

    The larger the width, the sharper the kernel: it is one over the bandwidth.
    """

    width: float | Tensor = 1.0

    @classmethod
    def samples(cls) -> Sequence[Self]:
        width = torch.tensor([[0.5, 1.0, 1.5], [1.2, 0.3, 0.8]], dtype=torch.float64)
        return [cls(0.8), cls(width), cls(torch.tensor(0.9, dtype=torch.float64))]

    @classmethod
    def start(cls, heads: int, width: int) -> dict[str, Tensor]:
        # a scaled dot product less both lengths
        return {"width": torch.full((heads, width), width**-0.25)}

    def misfit(self, sizes: Sizes) -> str | None:
        if not isinstance(self.width, Tensor) or self.width.numel() == 1:
            return None
        if tuple(self.width.shape) in ((sizes.d,), (sizes.h, sizes.d)):
            return None
        return (
            f"Gaussian width must be a number, (d,)=({sizes.d},) or (heads, d)=({sizes.h}, {sizes.d}),"
            f" got shape {tuple(self.width.shape)}."
        )

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        width = self.width
        if isinstance(width, Tensor) and width.ndim == 2:
            width = width[:, None, None, :]
        step = (query.unsqueeze(-2) - key.unsqueeze(-3)) * width
        return -0.5 * (step * step).sum(-1)

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        width = self.width if isinstance(self.width, Tensor) else query.new_tensor(self.width)
        if width.numel() == 1:
            width = width.reshape(1, 1).expand(1, query.shape[-1])
        return query, key, Distance(width if width.ndim == 2 else width[None])
