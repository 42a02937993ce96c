"""Statistics of attention weights by streaming: entropy, top keys, a map and more, never n×m numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Bias, Mask, RegardError, Score, Sizes, Weigh
from regard.engine.backends.fused import look as fused
from regard.engine.call import Call
from regard.engine.check import as_terms
from regard.engine.fold import fold, lift
from regard.engine.looking.exact import keep_rows
from regard.engine.looking.walk import Wanted, walk
from regard.engine.weights import describe_weights
from regard.mask import Full
from regard.score import Dot
from regard.weigh import Softmax


@dataclass(frozen=True, eq=False)
class Look:
    """Statistics of attention weights, before dropout; `look` makes it. Leading axes and heads are the caller's own.

    Shares are a row's weights over their sum (of magnitudes, where some are negative). Query i stands at key
    i + m − n: positions align at the end.
    """

    # the largest weights of each query and their keys, largest first; key −1 where no other has any weight
    top_keys: Int[Tensor, "*p i k"]
    top_weights: Float[Tensor, "*p i k"]
    # of the row's shares, in nats
    entropy: Float[Tensor, "*p i"]
    # the largest weight, and the sum of all
    peak: Float[Tensor, "*p i"]
    total: Float[Tensor, "*p i"]
    # the weight of key 0, and of the keys within the window around the query
    first: Float[Tensor, "*p i"]
    local: Float[Tensor, "*p i"]
    # the mean way from the query to what it attends to, by shares
    distance: Float[Tensor, "*p i"]
    # what each key was given by all queries
    received: Float[Tensor, "*p j"]
    # sums of weights in blocks of ceil(n / map) queries by ceil(m / map) keys
    map: Float[Tensor, "*p r c"]
    # the chosen queries in full
    rows: Float[Tensor, "*p chosen j"]
    chosen: Int[Tensor, " chosen"]
    # the call's terms in words
    terms: str = ""
    # with keep=True, weight(i, j) is exp(query_i · key_j − logsumexp_i) for spans[i, 0] <= j < spans[i, 1], else zero
    query: Float[Tensor, "*p i d"] | None = None
    key: Float[Tensor, "*b g j d"] | None = None
    logsumexp: Float[Tensor, "*p i"] | None = None
    spans: Int[Tensor, "*p i two"] | None = None
    # why these four are not there
    why: str = "not kept: look(…, keep=True) keeps query and key"

    @property
    def block(self) -> tuple[int, int]:
        """How many queries and keys a cell of the map covers, the last ones aside."""
        n, m = self.entropy.shape[-1], self.received.shape[-1]
        lines, columns = self.map.shape[-2:]
        return max(-(-n // max(lines, 1)), 1), max(-(-m // max(columns, 1)), 1)

    def to(self, device: str | torch.device) -> Self:
        """The same look, its tensors on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {name: x.to(device) for name, x in values.items() if isinstance(x, Tensor)}
        return replace(self, **moved)

    def __repr__(self) -> str:
        *lead, n = self.entropy.shape
        return f"Look({n} queries, {self.received.shape[-1]} keys, leading axes {lead}, {self.terms})"


@torch.no_grad()
def look(
    query: Float[Tensor, "*b h i d"],
    key: Float[Tensor, "*b g j c"],
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] = Dot(),
    weigh: Weigh = Softmax(),
    mask: Mask | Tensor = Full(),
    bias: Bias | Tensor | None = None,
    top: int = 16,
    rows: Iterable[int] = (),
    map: int = 256,
    window: int = 8,
    keep: bool = False,
    backend: str = "auto",
) -> Look:
    """Statistics of the weights that `attend` of the same terms uses; memory grows with n, never with n×m.

    >>> seen = look(torch.eye(3)[None], 9 * torch.eye(3)[None], top=1)
    >>> seen.top_keys[0, :, 0]  # each query regards the key that is its own
    tensor([0, 1, 2])
    >>> seen.received.sum()  # three queries, each with a weight of one to give
    tensor(3.)

    `rows` chooses queries whose weights are given in full, from the end where negative. `keep` keeps query and key of
    a softmax of dot products, from which any weight can be recomputed. `backend` is "tiled" (everything, everywhere),
    "fused" (CUDA kernels for softmax of a dot product) or "auto".
    """
    given = as_terms(score, weigh, mask, bias)
    call, value = describe_weights(query, key, given)
    sizes = call.sizes
    if sizes.device.type == "meta":
        raise RegardError("look needs numbers to look at, and tensors on meta have none.")
    wanted = Wanted(_count("top", top, 0), _choose(rows, sizes.n), _count("map", map, 1), _count("window", window, 0))
    terms = ", ".join(str(term) for term in given if term is not None)
    query, key, value = (fold(x, sizes) for x in (query, key, value))
    is_fused = _has_kernel(call, wanted, backend)
    with torch.autocast(sizes.device.type, enabled=False):
        kept: dict[str, Any] = keep_rows(call, query, key) if keep else {}
        has_logsumexp = "query" in kept
        if is_fused:
            found = fused.run(call, query, key, wanted, has_logsumexp)
        else:
            lifted, query, key, _ = lift(call, query, key, value)
            found = walk(lifted, query, key, wanted, has_logsumexp)
    shown: dict[str, Any] = {
        name: _unfold(x, sizes) if isinstance(x, Tensor) else x for name, x in (found | kept).items()
    }
    chosen = torch.tensor(wanted.rows, dtype=torch.int64, device=sizes.device)
    return Look(**shown, chosen=chosen, terms=terms)


def _has_kernel(call: Call, wanted: Wanted, backend: str) -> bool:
    """Whether Triton's kernels make the look; raises where they were asked for and cannot."""
    if backend not in ("auto", "tiled", "fused"):
        raise RegardError(f"look backend must be 'auto', 'tiled' or 'fused', got {backend!r}.")
    if backend == "tiled" or (backend == "auto" and call.sizes.device.type != "cuda"):
        return False
    reason = fused.refuse(call, wanted)
    if reason is not None and backend == "fused":
        raise RegardError(f"look backend='fused' cannot take this call: {reason} Use backend='auto'.")
    return reason is None


def _unfold(x: Tensor, sizes: Sizes) -> Tensor:
    """(b, h, …) in the caller's own axes."""
    return x.reshape(*sizes.lead, *(x.shape[1:] if sizes.has_heads else x.shape[2:]))


def _count(name: str, count: int, least: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise RegardError(f"look {name} must be a whole number, {least} or more, got {count!r}.")
    return count


def _choose(rows: Iterable[int], n: int) -> tuple[int, ...]:
    try:
        # whole numbers of any library
        chosen = [operator.index(row) for row in rows]
    except TypeError:
        raise RegardError(f"look rows must be a list of whole numbers, got {str(rows)[:60]}.") from None
    for row in chosen:
        if not -n <= row < n:
            raise RegardError(f"look rows must be queries from {-n} to {n - 1}, got {row}.")
    return tuple(row % n for row in chosen)
