"""Reading a look: the statistics and weights of one head of one sequence, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.core import Pointwise, RegardError
from regard.engine.look import Look, look
from regard.views.labels import show_token

Table = npt.NDArray[np.float64]
# plain ones: (queries, keys), (heads, queries, keys) or (batch, heads, queries, keys)
Weights = Tensor | npt.NDArray[Any]
# of a look, what a list of heads may be sorted by; and which end of it comes first
ORDERS = {"entropy": 1, "local": -1, "first": -1, "received": -1}
# of a look's fields, those with two axes after the heads
ENDS = dict.fromkeys(("top_keys", "top_weights", "map", "rows", "query", "key", "spans"), 2)
# weights that are computed for one picture at most: more than it has points
MOST = 4_000_000


def is_weights(seen: Any) -> bool:
    """Whether this is a plain tensor or array, of weights."""
    return isinstance(seen, Tensor | np.ndarray)


@dataclass(frozen=True, repr=False)
class _Given(Pointwise):
    """A weigher that is the identity: scores that are weights already."""

    def weight(self, scores: Tensor) -> Tensor:
        return scores


def look_at(weights: Any, cells: int | None = None) -> Look:
    """Plain weights as a look, always with batch and heads; its map has a cell for each weight, or so many a side.

    >>> look_at(torch.eye(3)).top_keys[0, 0, :, 0]
    tensor([0, 1, 2])
    """
    if isinstance(weights, Tensor) and weights.is_nested:
        raise RegardError("weights must be one table of numbers, got a nested tensor: give one of its parts at a time.")
    if isinstance(weights, Tensor) and weights.is_meta:
        raise RegardError("weights must be numbers, got a meta tensor, which has none: give those of a real call.")
    try:
        table = _read_array(weights) if isinstance(weights, np.ndarray) else weights.detach().to_dense().cpu()
        table = table if table.is_complex() or table.dtype == torch.float64 else table.float()
    except (TypeError, ValueError, RuntimeError):
        raise RegardError(f"weights must be numbers, got an array of {weights.dtype}.") from None
    if table.is_complex() or not 2 <= table.ndim <= 4:
        raise RegardError(
            "weights must be real numbers (queries, keys), (heads, queries, keys) or (batch, heads, queries, keys), got"
            f" {str(table.dtype).removeprefix('torch.')} of shape {tuple(table.shape)}."
        )
    table = table.reshape(*(1,) * (4 - table.ndim), *table.shape)
    n, m = table.shape[2:]
    # scores of nothing, and what is added to them
    rows = (table.new_zeros(*table.shape[:2], count, 1) for count in (n, m))
    seen = look(*rows, bias=table, weigh=_Given(), map=max(n, m, 1) if cells is None else cells)
    return replace(seen, terms="weights as given", why="not kept: of plain weights there is no query and key")


def _read_array(weights: npt.NDArray[Any]) -> Tensor:
    """A copy as a tensor, in a dtype and an order that torch has."""
    kind = np.result_type(weights.dtype, np.float32)
    return torch.from_numpy(np.array(weights, dtype=np.float64 if kind == np.longdouble else kind, order="C"))


def list_looks(seen: Any) -> list[tuple[str, Look]]:
    """Looks by name: of what `watch` recorded, of a list, or of one look or tensor of weights."""
    if isinstance(seen, Look) or is_weights(seen):
        seen = [seen]
    pairs: list[tuple[Any, Any]] = []
    if isinstance(seen, Mapping):
        pairs = list(seen.items())
    elif isinstance(seen, Sequence) and not isinstance(seen, str):
        pairs = list(enumerate(seen))
    else:
        raise RegardError(f"seen must be what `watch` or `look` gave, or weights, got {type(seen).__name__}.")
    for name, shown in pairs:
        if not isinstance(shown, Look) and not is_weights(shown):
            raise RegardError(f"seen[{str(name)[:40]!r}] must be a look, or weights, got {type(shown).__name__}.")
    if not pairs:
        raise RegardError("seen has no looks: no attention ran while it watched.")
    return [(str(name), look_at(shown) if is_weights(shown) else shown) for name, shown in pairs]


def count_heads(look: Look) -> int:
    """The number of heads: the last axis before the queries, where there are batches before it."""
    return int(look.entropy.shape[-2]) if look.entropy.ndim >= 3 else 1


def read_look(look: Any, head: int = 0, sequence: int = 0) -> Look:
    """Check a look, or make one of plain weights, and that it has such a head and sequence."""
    look = look_at(look) if is_weights(look) else look
    if not isinstance(look, Look):
        raise RegardError(
            f"look must be a look, as `look` gives it or seen[name], or a tensor of weights, got {type(look).__name__}."
        )
    heads = count_heads(look)
    if not look.received.numel() or not look.entropy.numel():
        raise RegardError("look has no queries or no keys: there is nothing to draw.")
    _check_index("head", head, heads)
    _check_index("sequence", sequence, look.entropy[..., 0].numel() // heads)
    return look


def check_query(look: Look, query: int) -> None:
    _check_index("query", query, look.entropy.shape[-1])


def _check_index(name: str, value: Any, count: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise RegardError(f"{name} must be a whole number from 0 to {count - 1}, got {str(value)[:40]}.")


def pick(look: Look, field: str, sequence: int) -> Tensor:
    """A field of one sequence, (heads, …); keys are (groups, …): grouped-query attention has fewer of them."""
    lead = list(look.entropy.shape[:-1])
    values: Tensor = getattr(look, field)
    at = values.ndim - ENDS.get(field, 1)
    tail = values.shape[at:]
    if len(lead) < 2:
        return values.expand(*lead, *tail).reshape(math.prod(lead), 1, *tail)[sequence]
    heads = values.shape[at - 1] if field == "key" else lead[-1]
    return values.expand(*lead[:-1], heads, *tail).reshape(math.prod(lead[:-1]), heads, *tail)[sequence]


def take(look: Look, field: str, head: int = 0, sequence: int = 0) -> Table:
    """A field of one head, in float64."""
    values = pick(look, field, sequence)
    return to_numbers(values[head * len(values) // count_heads(look)])


def to_numbers(values: Any) -> Table:
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def read_map(look: Look, head: int = 0, sequence: int = 0) -> Table:
    """The mean weight in each cell of a head's map: comparable whatever the cells' sizes, the last ones' too."""
    sums, (down, across) = take(look, "map", head, sequence), look.block
    n, m = look.entropy.shape[-1], look.received.shape[-1]
    tall = np.minimum(down, n - down * np.arange(sums.shape[0]))
    wide = np.minimum(across, m - across * np.arange(sums.shape[1]))
    means: Table = sums / (tall[:, None] * wide[None, :])
    return means


def read_row(look: Look, query: int, head: int = 0, sequence: int = 0) -> tuple[Table, str]:
    """The weights of one query, and how they are known: "exact", or "top 16" where the rest was not kept."""
    check_query(look, query)
    chosen = look.chosen.tolist()
    if query in chosen:
        return take(look, "rows", head, sequence)[chosen.index(query)], "exact"
    if look.block == (1, 1):
        return take(look, "map", head, sequence)[query], "exact"
    if look.query is not None:
        return _compute(look, slice(query, query + 1), head, sequence)[0], "exact"
    keys, weights = (take(look, field, head, sequence)[query] for field in ("top_keys", "top_weights"))
    row = np.zeros(look.received.shape[-1])
    row[keys[keys >= 0].astype(int)] = weights[keys >= 0]
    return row, f"top {len(keys)}"


def read_table(look: Look, head: int = 0, sequence: int = 0) -> Table:
    """All weights of a head, where the look has them."""
    if look.block == (1, 1):
        return take(look, "map", head, sequence)
    n, m = look.entropy.shape[-1], look.received.shape[-1]
    if look.query is not None:
        if n * m > MOST:
            raise RegardError(f"look has {n}×{m} weights, too many to draw one by one: use map(look), or fewer tokens.")
        return _compute(look, slice(None), head, sequence)
    raise RegardError(f"look has no {n}×{m} weights, its map is coarser: look again with map={max(n, m)} or keep=True.")


def _compute(look: Look, rows: slice, head: int, sequence: int) -> Table:
    query, logsumexp, spans = (take(look, field, head, sequence)[rows] for field in ("query", "logsumexp", "spans"))
    given = (query, take(look, "key", head, sequence), logsumexp, spans)
    return weigh_rows(*map(torch.from_numpy, given)).numpy()


def weigh_rows(query: Tensor, key: Tensor, logsumexp: Tensor, spans: Tensor) -> Tensor:
    """Weights (i, j) in double, of what a look with keep=True has of one head."""
    place = torch.arange(len(key))
    allowed = (place >= spans[:, :1]) & (place < spans[:, 1:])
    # where nothing is allowed, or a sink has all of the weight, the statistic is infinite
    return (query.double() @ key.double().T - logsumexp.double()[:, None]).exp().masked_fill(~allowed, 0.0)


def read_tokens(tokens: Iterable[str] | None, count: int, name: str = "tokens") -> list[str] | None:
    """Tokens as they are shown, one for each of `count`; None stays None."""
    if tokens is None:
        return None
    listed = list_texts(tokens, name)
    if len(listed) != count:
        raise RegardError(f"{name} must be {count}, one for each place, got {len(listed)}.")
    return [show_token(token) for token in listed]


def list_texts(texts: Any, name: str) -> list[str]:
    """Texts that come in a list, or one by one."""
    if not isinstance(texts, Iterable):
        raise RegardError(f"{name} must be a list of text, one for each place, got {type(texts).__name__}.")
    listed = list(texts)
    for text in listed:
        if not isinstance(text, str):
            raise RegardError(f"{name} must be text, got {type(text).__name__}: decode the ids first.")
    return listed


def check_title(title: Any, name: str = "title") -> None:
    if title is not None and not isinstance(title, str):
        raise RegardError(f"{name} must be text, got {type(title).__name__}.")


def score_head(look: Look, head: int, sequence: int, order: str) -> float:
    """What a head is sorted by: the mean over its queries, or the largest share that one key received."""
    values = take(look, order, head, sequence)
    if order != "received":
        return float(values.mean())
    total = float(np.abs(values).sum())
    return float(np.abs(values).max()) / total if total else 0.0
