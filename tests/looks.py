"""What a look must say, from all weights at once: the oracle of the tests of `look`."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engine import Look
from tests.tolerances import assert_close


def measure(weights: Tensor, map: int = 256, window: int = 8) -> dict[str, Tensor]:
    """Every statistic of a look but top-k, by its definition on (…, n, m) weights."""
    n, m = weights.shape[-2:]
    way = (torch.arange(n)[:, None] + m - n - torch.arange(m)).abs().to(weights)
    sums = weights.abs().sum(-1, keepdim=True)
    shares = torch.where(sums > 0, weights.abs() / sums, 0.0)
    tall, wide = -(-n // map), -(-m // map)
    lines = torch.arange(n)[:, None] // tall == torch.arange(-(-n // tall))
    columns = torch.arange(m)[:, None] // wide == torch.arange(-(-m // wide))
    return {
        "entropy": -torch.where(shares > 0, shares * shares.log(), 0.0).sum(-1),
        "peak": weights.max(-1).values.clamp_min(0),
        "total": weights.sum(-1),
        "first": weights[..., 0],
        "local": torch.where(way <= window, weights, 0.0).sum(-1),
        "distance": (shares * way).sum(-1),
        "received": weights.sum(-2),
        "map": lines.to(weights).T @ weights @ columns.to(weights),
    }


def assert_is_look(look: Look, weights: Tensor, what: str, map: int = 256, window: int = 8) -> None:
    """The look says of these weights what is true of them, top-k up to ties."""
    for name, expected in measure(weights, map, window).items():
        assert_close(getattr(look, name), expected, f"{name} of {what}")
    assert_close(look.rows, weights[..., look.chosen, :], f"rows of {what}")
    count = look.top_keys.shape[-1]
    found = look.top_keys >= 0
    # a key is named once, and with its own weight
    own = weights.gather(-1, look.top_keys.clamp_min(0))
    assert_close(look.top_weights, torch.where(found, own, 0.0), f"top weights of {what}")
    ordered = torch.where(found, look.top_keys, -1 - torch.arange(count)).sort(-1).values
    assert (ordered.diff(dim=-1) != 0).all(), f"{what} names a key twice"
    # the largest in order, of those that are not zero; where weights may be negative zero is not the least
    if (weights >= 0).all():
        assert_close(look.top_weights, weights.topk(count, -1).values, f"order of {what}")
        assert torch.equal(found.sum(-1), (weights > 0).sum(-1).clamp_max(count)), f"{what} leaves keys out"


def remake(look: Look) -> Tensor:
    """All weights again, from the query and key that a look kept."""
    assert look.query is not None, look.why
    assert look.key is not None
    assert look.logsumexp is not None
    assert look.spans is not None
    key = look.key
    if key.ndim > 3:
        key = key.repeat_interleave(look.query.shape[-3] // key.shape[-3], -3)
    places = torch.arange(key.shape[-2])
    allowed = (places >= look.spans[..., :1]) & (places < look.spans[..., 1:])
    return torch.where(allowed, (look.query @ key.mT - look.logsumexp[..., None]).exp(), 0.0)
