"""Hard attention, to one sampled key: https://arxiv.org/abs/1502.03044."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from regard.core import Mask, Pointwise, RegardError, Score
from regard.engine import attend, find_weights
from regard.layers.attention import Attention
from regard.layers.inputs import as_lengths, check_call, join_dtypes
from regard.layers.scored import DotProductAttention, ScoredAttention
from regard.weigh import Hard, Softmax

WAYS = ("reinforce", "straight-through")


@dataclass(frozen=True, repr=False)
class _Mass(Pointwise):
    """e^score."""

    def weight(self, scores: Tensor) -> Tensor:
        return torch.exp(scores)

    def derivative(self, scores: Tensor, weights: Tensor) -> Tensor:
        return weights


@dataclass(frozen=True, repr=False)
class _Moment(Pointwise):
    """score·e^score."""

    def weight(self, scores: Tensor) -> Tensor:
        # −inf × 0 is zero here
        return torch.where(scores == -torch.inf, 0.0, scores) * torch.exp(scores)

    def derivative(self, scores: Tensor, weights: Tensor) -> Tensor:
        return torch.exp(scores) + weights


@dataclass(frozen=True, eq=False)
class Draw:
    """The keys that a call of `HardAttention` sampled; their log-probability and entropy, in O(n) memory.

    `drawn` is the key that each query got. A query with no valid key has a log-probability and an entropy of zero.
    """

    query: Tensor
    key: Tensor
    drawn: Tensor
    score: Score
    mask: Mask

    @cached_property
    @torch.enable_grad()
    def log_prob(self) -> Float[Tensor, "batch queries"]:
        """The log-probability of the drawn key, with its gradient, also where it is first read under `no_grad`."""
        found = self._found
        rate = found - found.detach() - self._total.log()
        return torch.where(self._is_empty, 0.0, rate)

    @cached_property
    @torch.enable_grad()
    def entropy(self) -> Float[Tensor, "batch queries"]:
        """The entropy −Σ p·log p over each query's keys, likewise."""
        return self._total.log() - self._sum(_Moment()) / self._total

    @cached_property
    def _found(self) -> Tensor:
        """The score of each query with its drawn key."""
        query, key, score = _lift(self.query, self.drawn, self.score)
        # as `attend` does: autocast would round the products
        with torch.autocast(query.device.type, enabled=False):
            found = score(query.unsqueeze(-2), key.unsqueeze(-2))[..., 0, 0]
        return found.to(torch.promote_types(found.dtype, torch.float32))

    @cached_property
    def _mass(self) -> Tensor:
        return self._sum(_Mass())

    @property
    def _is_empty(self) -> Tensor:
        return self._mass == 0

    @property
    def _total(self) -> Tensor:
        return torch.where(self._is_empty, 1.0, self._mass)

    def _sum(self, weigh: Pointwise) -> Tensor:
        """Σ over keys of weights of the scores, measured from that of the drawn key.

        A drawn key is at most 20 below the best, as far as the random numbers reach: e^score does not overflow.
        """
        query, key, score = _lift(self.query, self.key, self.score)
        ones = key.new_ones(*key.shape[:-1], 1)
        bias = -self._found.detach().unsqueeze(-1).to(key.dtype)
        out = attend(query, key, ones, score=score, weigh=weigh, mask=self.mask, bias=bias)[..., 0]
        return out.to(torch.promote_types(out.dtype, torch.float32))


class HardAttention(Attention):
    """Hard attention to one key: sampled from softmax in training, the best in evaluation.

    >>> layer = HardAttention(DotProductAttention()).eval()
    >>> queries, keys, values = torch.ones(1, 1, 2), torch.tensor([[[0.0, 1.0], [2.0, 0.0]]]), torch.eye(2)[None]
    >>> layer(queries, keys, values), layer.attention_weights
    (tensor([[[0., 1.]]]), tensor([[[0., 1.]]]))
    >>> out = layer.train()(queries, keys, values)
    >>> loss = layer.reinforce(reward=torch.ones(1))
    >>> layer.baseline
    tensor(0.1000)

    `attention` scores the keys: any layer of one score, with its softmax, such as `AdditiveAttention(…)`; its dropout
    drops the drawn value of a query. No gradient passes through a draw, so that the scores learn in one of two ways:

    - `how="reinforce"`: call the layer, find out how good its output was, and add `layer.reinforce(reward)` to the loss
      before `backward`. The estimate is unbiased.
    - `how="straight-through"`: the output is the drawn value, the gradient that of soft attention: biased, with less
      noise, and nothing to call.

    `samples_in_eval` draws in evaluation, too. Draws follow `torch.manual_seed`.
    """

    baseline: Tensor

    def __init__(
        self, attention: ScoredAttention | None = None, *, how: str = "reinforce", entropy: float = 0.002,
        momentum: float = 0.9, samples_in_eval: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        attention = DotProductAttention() if attention is None else attention
        if not isinstance(attention, ScoredAttention):
            raise RegardError(
                "HardAttention attention must be a layer of one score such as DotProductAttention() or None,"
                f" got {type(attention).__name__}."
            )
        if type(attention.weigh) is not Softmax or attention.weigh.sink is not None:
            raise RegardError(
                f"HardAttention draws by softmax, attention has weigh={attention.weigh}: leave its weigh out."
            )
        if how not in WAYS:
            raise RegardError(f"HardAttention how must be 'reinforce' or 'straight-through', got {how!r}.")
        if not 0 <= momentum < 1:
            raise RegardError(f"HardAttention momentum must lie in [0, 1), got {momentum}.")
        self.attention, self.how, self.entropy, self.momentum = attention, how, entropy, momentum
        self.samples_in_eval = samples_in_eval
        self.register_buffer("baseline", torch.zeros(()))
        self._draw: Draw | None = None

    @property
    def draw(self) -> Draw | None:
        """The sample of the last call, None where it took the best or `how` is "straight-through"."""
        return self._draw

    @property
    def soft_weights(self) -> Tensor | None:
        """The softmax probabilities of the last call, (batch, queries, keys), that `attention_weights` sample."""
        seen = self._recall()
        return None if seen is None else find_weights(seen.query, seen.key, score=seen.score, mask=seen.mask)

    def forward(
        self,
        queries: Float[Tensor, "batch queries query_size"],
        keys: Float[Tensor, "batch keys key_size"],
        values: Float[Tensor, "batch keys value_size"],
        valid_lens: Tensor | None = None,
    ) -> Float[Tensor, "batch queries value_size"]:
        check_call(self, queries, keys, values, self.attention.query_size, self.attention.key_size)
        mask = as_lengths(self, valid_lens, queries, keys.shape[1])
        query, key, score = self.attention.compare(queries, keys)
        query, key, values = join_dtypes(query, key, values)
        draws = self.training or self.samples_in_eval
        weigh = Hard("sample" if draws else "argmax")
        self._draw = None
        if self.how == "straight-through":
            out = self._attend(query, key, values, score=score, weigh=weigh, mask=mask).detach()
            if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, values, *score.tensors)):
                soft = attend(query, key, values, score=score, mask=mask)
                # in this order the output is the drawn value to the last bit
                out = out + (soft - soft.detach())
        elif draws:
            # the keys ride along as values: what comes back is the drawn one, with its gradient
            both = self._attend(query, key, torch.cat([values, key], -1), score=score, weigh=weigh, mask=mask)
            out, drawn = both.split([values.shape[-1], key.shape[-1]], -1)
            self._draw = Draw(query, key, drawn, score, mask)
        else:
            out = self._attend(query, key, values, score=score, weigh=weigh, mask=mask)
        rate = self.attention.dropout if self.training else 0.0
        # one weight in each row: to drop it is to drop the row
        return out * functional.dropout(out.new_ones(*out.shape[:-1], 1), rate) if rate else out

    def reinforce(self, reward: Tensor, draws: Sequence[Draw] | None = None) -> Tensor:
        """REINFORCE's term of the loss: −(reward − baseline)·log p(drawn) − entropy·H, summed over queries, batch mean.

        `reward` is (batch,) or (batch, queries), the higher the better; no gradient passes it. The baseline is that of
        earlier rewards, and moves afterwards to momentum·baseline + (1 − momentum)·mean reward. A model that calls the
        layer several times for one reward keeps `layer.draw` after each call, and hands in all of them as `draws`. Go
        backward once, before the optimiser's step: this term shares its graph with the output.
        """
        if draws is None:
            if self._draw is None:
                raise RegardError(
                    "HardAttention has no draw to reinforce: call the layer in training, with how='reinforce', and"
                    " reinforce it once."
                )
            draws = [self._draw]
        if not draws:
            raise RegardError("HardAttention draws must hold at least one draw, got none.")
        for draw in draws:
            batch, n = draw.query.shape[:2]
            if not isinstance(reward, Tensor) or tuple(reward.shape) not in ((batch,), (batch, n)):
                got = f"shape {tuple(reward.shape)}" if isinstance(reward, Tensor) else type(reward).__name__
                raise RegardError(
                    f"HardAttention reward must be a tensor (batch,)=({batch},) or (batch, queries)=({batch}, {n}),"
                    f" got {got}."
                )
        reward = reward.detach().to(torch.promote_types(draws[0].log_prob.dtype, reward.dtype))
        gain = reward - self.baseline
        parts = []
        for draw in draws:
            part = -(gain if gain.ndim == 2 else gain.unsqueeze(-1)) * draw.log_prob
            if self.entropy:
                part = part - self.entropy * draw.entropy
            # the mean over an empty batch would be NaN
            parts.append(part.sum() / max(part.shape[0], 1))
        # the layer lets go of the graph
        self._draw = None
        if reward.numel():
            self.baseline.lerp_(reward.mean().to(self.baseline.dtype), 1 - self.momentum)
        return torch.stack(parts).sum()

    def extra_repr(self) -> str:
        return f"how={self.how!r}, entropy={self.entropy}, momentum={self.momentum}"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_draw": None}


def _lift(query: Tensor, key: Tensor, score: Score) -> tuple[Tensor, Tensor, Score]:
    """Half precision upcast to float32, so that sums over a row are; a user's function keeps its own."""
    if score.keeps_dtype:
        return query, key, score
    wide = torch.promote_types(query.dtype, torch.float32)
    if wide != query.dtype:
        score = score.with_tensors([x.to(wide) for x in score.tensors])
    return query.to(wide), key.to(wide), score
