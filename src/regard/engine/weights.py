"""The attention weights themselves, to look at: n×m numbers, which `attend` never holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Bias, Mask, Score, Weigh
from regard.engine.backends import reference
from regard.engine.call import Call
from regard.engine.check import Terms, as_terms, check_call
from regard.engine.fold import fold, lift
from regard.mask import Full
from regard.score import Dot
from regard.weigh import Softmax


def make_weights(
    query: Tensor, key: Tensor, *, score: Score | Callable[[Tensor, Tensor], Tensor], weigh: Weigh,
    mask: Mask | Tensor, bias: Bias | Tensor | None,
) -> Tensor:  # fmt: skip
    """`find_weights`, with gradients."""
    call, value = describe_weights(query, key, as_terms(score, weigh, mask, bias))
    sizes = call.sizes
    call, query, key, _ = lift(call, *(fold(x, sizes) for x in (query, key, value)))
    with torch.autocast(sizes.device.type, enabled=False):
        weights = reference.weigh(call, query, key)
    return weights.reshape(sizes.pairs).to(sizes.dtype)


@torch.no_grad()
def find_weights(
    query: Float[Tensor, "*b h i d"],
    key: Float[Tensor, "*b g j c"],
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] = Dot(),
    weigh: Weigh = Softmax(),
    mask: Mask | Tensor = Full(),
    bias: Bias | Tensor | None = None,
) -> Float[Tensor, "*b h i j"]:
    """The attention weights of `attend` with the same terms, before dropout and without gradients.

    >>> find_weights(torch.zeros(1, 2, 4), torch.zeros(1, 3, 4)).shape
    torch.Size([1, 2, 3])
    """
    return make_weights(query, key, score=score, weigh=weigh, mask=mask, bias=bias)


def describe_weights(query: Tensor, key: Tensor, terms: Terms) -> tuple[Call, Tensor]:
    """The checked and settled call of a query and key alone, and its values, which have no columns."""
    # what is no tensor is complained of below
    value = key[..., :0] if isinstance(key, Tensor) else key
    call = check_call(query, key, value, terms)
    return replace(call, weigh=call.weigh.settle(call.sizes)), value
