"""A second oracle: the answer to a call from the papers' formulas alone, in NumPy's long double.

It shares nothing with `oracle` and `pairs`, nor with the library: masks, buckets and slopes are made anew, gradients
are worked out by hand, thresholds are solved for. What it takes from a case beside the numbers are the bits of dropout
and the noise of a sample. On x86 a long double has 64 bits of mantissa; where a platform has nothing wider than
float64, `answer` warns, and is one more float64 oracle.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.fuzz import settings
from tests.fuzz.data import Case
from tests.fuzz.formulas_scores import LONG, SCORES, Array, Leaves, Pull, flip, sum_to
from tests.fuzz.formulas_weighers import WEIGHERS

IS_EXTENDED = np.finfo(LONG).nmant > np.finfo(np.float64).nmant
ROWS = ("query", "key", "value")


def answer(case: Case) -> dict[str, Tensor]:
    """Output and the gradients of all learned leaves, in the caller's shapes, each rounded once to float64."""
    if not IS_EXTENDED:
        warnings.warn("long double is float64 here: the formulas are no more exact than the oracle", stacklevel=2)
    found = compute(case, lift(case.leaves))
    rounded = {at: torch.from_numpy(found[at].astype(np.float64)) for at in ("output", *case.learned)}
    return {at: x.to(settings.ORACLE) for at, x in rounded.items()}


def lift(leaves: dict[str, Tensor]) -> dict[str, Array]:
    return {at: _take(x) for at, x in leaves.items()}


def _take(x: Tensor) -> Array:
    return x.detach().cpu().numpy().astype(LONG)


def compute(case: Case, leaves: Leaves) -> dict[str, Array]:
    """The same in long double, for all leaves: those of the case, or others of their shapes."""
    shape = (case.b, case.h, case.n, case.m)
    if 0 in shape:
        return {"output": np.zeros((*case.pairs[:-1], case.e))} | {at: np.zeros(x.shape) for at, x in leaves.items()}
    query, key, value = (spread_rows(case, leaves[at]) for at in ROWS)
    allowed = write_allowed(case.mask, case)
    scores, pull_scores = SCORES[case.score](query, key, leaves, case.facts)
    bias, pull_bias = write_bias(case, leaves)
    scores = scores + bias
    # a score of −inf is as good as a mask
    allowed = allowed & (scores > -np.inf)
    noise = 0 if case.gumbel is None else _take(case.gumbel)
    weights, pull_weights = WEIGHERS[case.weigh](scores + noise, allowed, leaves, case.facts)
    # the bits alone: what is kept grows by 1/(1 − p)
    kept = 1 if case.keep is None else (_take(case.keep) > 0) / (1 - LONG(case.draw.dropout))

    grad = _take(case.grad).reshape(*shape[:-1], case.e)
    found = pull_weights(kept * (grad @ flip(value)))
    grads = pull_bias(found["scores"]) | pull_scores(found.pop("scores")) | found
    grads["value"] = flip(kept * weights) @ grad
    grads |= {at: gather_rows(case, grads[at], leaves[at].shape) for at in ROWS}
    output = (kept * weights) @ value
    return {"output": output.reshape(*case.pairs[:-1], case.e)} | grads


def spread_rows(case: Case, x: Array) -> Array:
    """A leaf of rows as (b, h, length, width): batches broadcast, key heads repeated for the query heads they serve."""
    x = x if case.has_heads else x[..., None, :, :]
    heads, *rest = x.shape[-3:]
    x = np.broadcast_to(x, (*case.lead, heads, *rest)).reshape(case.b, heads, *rest)
    return x[:, [head * heads // case.h for head in range(case.h)]]


def gather_rows(case: Case, grad: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of spread rows in their leaf's shape."""
    heads = shape[-3] if case.has_heads else 1
    served = [head * heads // case.h for head in range(case.h)]
    by_head = np.zeros((case.b, heads, *grad.shape[-2:]), LONG)
    for head, of in enumerate(served):
        by_head[:, of] += grad[:, head]
    by_head = by_head.reshape(*case.lead, *(by_head.shape[1:] if case.has_heads else by_head.shape[2:]))
    return sum_to(by_head, shape)


def write_allowed(spec: tuple[Any, ...], case: Case) -> Array:
    """Which pairs may meet, (b, h, n, m)."""
    return np.broadcast_to(_write_mask(spec, case), (case.b, case.h, case.n, case.m))


def _write_mask(spec: tuple[Any, ...], case: Case) -> Array:
    name, *rest = spec
    b, h, n, m = case.b, case.h, case.n, case.m
    i, j = np.arange(n)[:, None], np.arange(m)
    if name == "full":
        return np.ones((n, m), bool)
    if name == "not":
        return ~_write_mask(rest[0], case)
    if name in ("and", "or"):
        one, two = (_write_mask(part, case) for part in rest)
        return one & two if name == "and" else one | two
    if name == "lengths":
        # one for each sequence, or one for each of its queries
        return j < np.asarray(rest[0]).reshape(b, 1, -1, 1)
    if name == "diagonal":
        before, after, offset = rest
        # the last query stands at the last key unless told otherwise
        place = i + np.asarray(m - n if offset is None else offset).reshape(-1, 1, 1, 1)
        return (j <= place + after) & (True if before is None else j >= place - before)
    if name == "document":
        keys, queries = (np.asarray(x) for x in rest)
        return queries[:, None, :, None] == keys[:, None, None, :]
    if name == "edges":
        linked = np.zeros((n, m), bool)
        for query, key in rest[0]:
            linked[query, key] = True
        return linked
    if name == "grid":
        width, (rows, columns) = rest
        return (abs(i // width - j // width) <= rows) & (abs(i % width - j % width) <= columns)
    assert name == "allowed", name
    return np.broadcast_to(rest[0].cpu().numpy(), case.pairs).reshape(b, h, n, m)


def write_bias(case: Case, leaves: Leaves) -> tuple[Array, Pull]:
    """What position adds to the scores, as it broadcasts to (b, h, n, m), and how their gradient comes back."""
    i, j = np.arange(case.n)[:, None], np.arange(case.m)
    if case.bias == "none":
        return np.zeros((), LONG), lambda grad: {}
    if case.bias == "dense":
        given = leaves["bias.0"]
        written = np.broadcast_to(given, case.pairs).reshape(case.b, case.h, case.n, case.m)
        return written, lambda grad: {"bias.0": sum_to(grad.reshape(case.pairs), given.shape)}
    if case.bias == "alibi":
        is_given = "bias.0" in leaves
        slopes = leaves["bias.0"] if is_given else np.asarray(list_slopes(case.h))
        far = np.abs(i + (case.facts["offset"] if is_given else case.m - case.n) - j).astype(LONG)
        return -slopes[:, None, None] * far, lambda grad: {"bias.0": -(grad * far).sum((0, 2, 3))} if is_given else {}
    if case.bias == "relative":
        return _write_relative(case, leaves["bias.0"])
    return _write_quadratic(case, leaves["bias.0"], leaves["bias.1"])


def list_slopes(heads: int) -> list[np.longdouble]:
    """ALiBi's: 2^(−8/h), 2^(−16/h), … for a power of two; else of the one below, then every other of the one above."""
    fitting = 2 ** int(math.log2(heads))
    series = [LONG(2) ** (-8 * LONG(t) / fitting) for t in range(1, fitting + 1)]
    between = [LONG(2) ** (-4 * LONG(t) / fitting) for t in range(1, 2 * fitting + 1, 2)]
    return series + between[: heads - fitting]


def find_buckets(distance: Array, buckets: int, most: int, two_sided: bool) -> Array:
    """T5's bucket of j − i: half of them for one distance each, the others on a logarithmic scale, in float32."""
    first, far = np.zeros_like(distance), np.maximum(-distance, 0)
    if two_sided:
        buckets //= 2
        first, far = buckets * (distance > 0), np.abs(distance)
    exact = buckets // 2
    share = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact)) / np.float32(math.log(most / exact))
    shared = exact + (share * np.float32(buckets - exact)).astype(np.int64)
    return first + np.where(far < exact, far, np.minimum(shared, buckets - 1))


def _write_relative(case: Case, table: Array) -> tuple[Array, Pull]:
    distance = np.arange(case.m) - np.arange(case.n)[:, None] - (case.m - case.n)
    bucket = find_buckets(distance, **case.facts["buckets"])

    def vjp(grad: Array) -> dict[str, Array]:
        by_pair = grad.sum(0)
        sums = [np.where(bucket == at, by_pair, 0).sum((-2, -1)) for at in range(table.shape[1])]
        return {"bias.0": np.stack(sums, -1)}

    return table[:, bucket], vjp


def _write_quadratic(case: Case, alpha: Array, centre: Array) -> tuple[Array, Pull]:
    """−alpha·‖δ − centre‖², where δ is the step in rows and columns from query to key."""
    cells = np.stack(np.divmod(np.arange(case.n), case.facts["width"]), -1)
    away = (cells[None, :] - cells[:, None]) - centre[:, None, None, :]
    squares = (away * away).sum(-1)

    def vjp(grad: Array) -> dict[str, Array]:
        by_pair = grad.sum(0)
        pulled = 2 * alpha[:, None] * (by_pair[..., None] * away).sum((1, 2))
        return {"bias.0": -(by_pair * squares).sum((1, 2)), "bias.1": pulled}

    return -alpha[:, None, None] * squares, vjp
