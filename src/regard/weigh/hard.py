"""Hard attention, all weight on one key: https://arxiv.org/abs/1502.03044."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from regard.core import Row, Sizes, Tile
from regard.core.bits import draw_seed, uniform


@dataclass(frozen=True, repr=False, eq=False)
class Hard(Row):
    """Hard attention to one key: the best (`how="argmax"`, the first of equals) or a softmax sample (`how="sample"`).

    >>> Hard()(torch.tensor([[1.0, 3.0, 3.0]]))
    tensor([[0., 1., 0.]])

    Draws come from `generator`, or torch's global one, and are the same on every backend. No gradient reaches the
    scores; the values have theirs.
    """

    how: str = "argmax"
    generator: torch.Generator | None = field(default=None, repr=False)
    seed: int | None = None
    has_signs = False

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(), cls("sample", seed=5)]

    def misfit(self, sizes: Sizes) -> str | None:
        if self.how not in ("argmax", "sample"):
            return f"Hard how must be 'argmax' or 'sample', got {self.how!r}."
        # a compiler's seed is not a number yet
        if self.seed is not None and not torch.compiler.is_compiling() and not 0 <= self.seed < 2**63:
            return f"Hard seed must lie in [0, 2**63), got {self.seed}."
        return None

    @property
    def draws(self) -> bool:
        """Whether it samples and has no random seed yet."""
        return self.how == "sample" and self.seed is None

    def settle(self, sizes: Sizes) -> Self:
        if not self.draws:
            return self
        return replace(self, seed=draw_seed(self.generator))

    def solve(self, scores: Tensor, tile: Tile) -> Tensor:
        if self.how == "sample":
            seed = draw_seed(self.generator) if self.seed is None else self.seed
            # the largest of score + Gumbel noise is a draw from the softmax
            chance = uniform(seed, tile, salt=1).to(scores.dtype)
            scores = scores - torch.log(-torch.log(chance)).view(scores.shape)
        best = scores.amax(-1, keepdim=True)
        # the first of equals, which argmax does not promise
        first = (scores == best).to(torch.int8).cumsum(-1).eq(1) & (scores == best)
        weights = first.to(scores.dtype).masked_fill_(best == -torch.inf, 0.0)
        return torch.where(best.isnan(), torch.nan, weights)

    def gradient(self, weights: Tensor, grad: Tensor) -> Tensor:
        return torch.zeros_like(grad)
