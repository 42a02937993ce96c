"""A look by the kernels, and the same statistics of dense weights in float64: interpreted on the CPU, or on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.engine import find_weights
from regard.engine.backends.fused import look
from regard.engine.call import Call
from regard.engine.check import check
from regard.engine.looking.walk import Wanted
from regard.mask import Full
from regard.score import Dot
from regard.weigh import Softmax
from tests.fused.against import DEVICE
from tests.terms import move

DEFAULTS: dict[str, Any] = {"score": Dot(), "weigh": Softmax(), "mask": Full(), "bias": None}


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def make_call(query: Tensor, key: Tensor, **terms: Any) -> Call:
    """A call of 4-D rows."""
    terms = {name: move(term, DEVICE) for name, term in (DEFAULTS | terms).items()}
    sizes = check(query, key, key[..., :0], terms["score"])
    settled = {name: None if term is None else term.settle(sizes) for name, term in terms.items() if name != "score"}
    return Call(sizes, terms["score"], **settled)


def measure(weights: Tensor, wanted: Wanted) -> dict[str, Tensor]:
    """What a look is to find, from weights (b, h, n, m)."""
    n, m = weights.shape[-2:]
    tall, wide = -(-n // wanted.map), -(-m // wanted.map)
    way = (torch.arange(n)[:, None] + m - n - torch.arange(m)).abs().to(weights)
    total = weights.sum(-1)
    shares = weights / torch.where(total == 0, 1.0, total)[..., None]
    cells = torch.nn.functional.pad(weights, (0, -m % wide, 0, -n % tall))
    return {
        "top_weights": weights.topk(min(wanted.top, m), -1).values,
        "entropy": torch.special.entr(shares).sum(-1), "peak": weights.amax(-1), "total": total,
        "first": weights[..., 0], "local": (weights * (way <= wanted.window)).sum(-1),
        "distance": (shares * way).sum(-1), "received": weights.sum(-2),
        "map": cells.unflatten(-1, (-1, wide)).unflatten(-3, (-1, tall)).sum((-1, -3)),
        "rows": weights[..., list(wanted.rows), :],
    }  # fmt: skip


def check_look(query: Tensor, key: Tensor, wanted: Wanted, **terms: Any) -> dict[str, Tensor]:
    """The look of the kernels, after all of it was held against dense weights."""
    call = make_call(query, key, **terms)
    assert look.refuse(call, wanted) is None
    found = look.run(call, query, key, wanted, has_logsumexp=True)
    wide = {name: move(term, DEVICE, torch.float64) for name, term in terms.items()}
    weights = find_weights(query.double(), key.double(), **wide)
    exact = measure(weights.cpu(), wanted)
    found = {name: x.cpu() for name, x in found.items()}
    assert set(found) == {*exact, "top_keys", "logsumexp"}
    for name, x in exact.items():
        assert (found[name].shape, found[name].dtype) == (x.shape, torch.float32), name
        assert torch.equal(found[name].isnan(), x.isnan()), name
        gap = (found[name] - x).abs().nan_to_num().max() if x.numel() else 0.0
        assert gap <= 1e-5 * max(1.0, x.abs().nan_to_num().max() if x.numel() else 0.0), f"{name} is off by {gap}"
    check_keys(found, weights.cpu())
    return found


def check_keys(found: dict[str, Tensor], weights: Tensor) -> None:
    """The keys are those of the weights beside them, no key twice, and −1 stands where there is no weight."""
    keys, shown = found["top_keys"], found["top_weights"]
    assert (keys.dtype, keys.shape) == (torch.int64, shown.shape)
    assert torch.equal(keys < 0, shown == 0)
    assert (shown.diff(dim=-1) <= 1e-6).all() or shown.isnan().any()
    behind = weights.gather(-1, keys.clamp_min(0)).masked_fill(keys < 0, 0.0)
    assert torch.allclose(behind, shown.double(), atol=1e-5, equal_nan=True)
    ordered = keys.sort(-1).values
    assert ((ordered.diff(dim=-1) > 0) | (ordered[..., 1:] < 0)).all()
