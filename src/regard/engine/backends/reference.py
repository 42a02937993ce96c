"""The oracle: every term by its definition, all n×m scores at once, gradients by plain autograd."""

from __future__ import annotations

from torch import Tensor

from regard.engine.call import Call, Cost
from regard.engine.double_backward import Again

# rows in the compute dtype, a key head for each query head; NaN under a mask is `attend`'s to remove
LIFTS, HANDLES_NAN, TWICE_DIFFERENTIABLE, AUTOCASTS, TRACEABLE = True, False, True, True, False
errs = None


def refuse(call: Call) -> str | None:
    """It takes everything."""
    return None


def decline(call: Call) -> str | None:
    return "it holds n×m scores: only by backend='reference'."


def estimate(call: Call) -> Cost:
    s = call.sizes
    pairs = s.b * s.h * s.n * s.m
    size = call.compute_dtype.itemsize
    # scores and weights, and once more for what backward keeps; a score on vectors of a pair holds those too
    held = (2 + (2 if call.needs_grad else 0)) * pairs
    if not call.score.is_dot:
        held += pairs * s.d
    ends = s.b * (s.h * s.n * (s.d + s.e) + s.g * s.m * (s.c + s.e))
    return Cost(2.0 * pairs * (s.d + s.e), ends * s.dtype.itemsize, held * size)


def run(call: Call, query: Tensor, key: Tensor, value: Tensor, _: Again | None = None) -> Tensor:
    weights = weigh(call, query, key)
    keep = call.keep(call.sizes.whole())
    if keep is not None:
        weights = weights * keep
    return weights @ value


def weigh(call: Call, query: Tensor, key: Tensor) -> Tensor:
    """All attention weights, n×m, before dropout."""
    tile = call.sizes.whole()
    scores = call.score(query, key).to(call.compute_dtype)
    if call.bias is not None:
        scores = scores + call.bias.tile(tile)
    if call.sizes.m == 0:
        return scores
    allowed = call.allowed(tile)
    if allowed is not None:
        allowed = allowed.expand(scores.shape)
    return call.weigh(scores, allowed, tile)
