"""Validation of a layer's inputs, in the names of its own arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import Mask, RegardError
from regard.mask import Full, Lengths
from regard.mask.integer import misfit_integers


def check_rows(layer: nn.Module, rows: Tensor, name: str, size_name: str, size: int | None) -> None:
    """Raise unless `rows` is (batch, positions, size) in the layer's dtype; `size` None is any width."""
    called = type(layer).__name__
    if not isinstance(rows, Tensor):
        raise RegardError(f"{called} {name} must be a tensor, got {type(rows).__name__}.")
    # size by size, here and below: a compiler finds its sizes of any number in no tuple
    if rows.ndim != 3 or (size is not None and rows.shape[-1] != size):
        wanted = size_name if size is None else f"{size_name}={size}"
        axis = name if name in ("queries", "keys", "values") else "positions"
        raise RegardError(f"{called} {name} must be (batch, {axis}, {wanted}), got shape {tuple(rows.shape)}.")
    check_dtype(layer, rows, name)


def change_rows(change: Callable[[Any], Any], *rows: Any) -> list[Any]:
    """Apply `change` to each; what was one tensor stays one, since layers project such rows together."""
    made = {id(x): change(x) for x in rows}
    return [made[id(x)] for x in rows]


def check_call(
    layer: nn.Module, queries: Tensor, keys: Tensor, values: Tensor, query_size: int | None, key_size: int | None
) -> None:
    """Raise unless these are queries, keys and values for a layer of one score."""
    check_rows(layer, queries, "queries", "query_size", query_size)
    check_rows(layer, keys, "keys", "key_size", key_size)
    check_rows(layer, values, "values", "value_size", None)
    check_together(layer, queries, keys, values)


def check_dtype(layer: nn.Module, rows: Tensor, name: str) -> None:
    """Raise unless `rows` is in the layer's dtype, where it has one and autocast does not see to it."""
    weight = next(layer.parameters(), None) if torch.compiler.is_compiling() else _find_weight(layer)
    if weight is None or rows.dtype == weight.dtype:
        return
    # it casts neither integers nor float64
    casts = rows.is_floating_point() and rows.dtype != torch.float64
    if not (casts and torch.is_autocast_enabled(rows.device.type)):
        have, want = (str(x.dtype).removeprefix("torch.") for x in (rows, weight))
        called = type(layer).__name__
        raise RegardError(
            f"{called} is in {want} and {name} in {have}: bring both to one, as by layer.to({name}.dtype)."
        )


def _find_weight(layer: nn.Module) -> Tensor | None:
    """The first of `layer.parameters()`, whose generators take longer than all else of a check."""
    for x in layer._parameters.values():
        if x is not None:
            return x
    for child in layer._modules.values():
        if child is not None and (found := _find_weight(child)) is not None:
            return found
    return None


def check_together(layer: nn.Module, queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Raise unless the three belong together."""
    called = type(layer).__name__
    batches = [x.shape[0] for x in (queries, keys, values)]
    if len(set(batches)) > 1:
        raise RegardError(f"{called} queries, keys and values must share their batch: got {batches}.")
    if keys.shape[1] != values.shape[1]:
        raise RegardError(
            f"{called} must have one value for each key: got {keys.shape[1]} keys and {values.shape[1]} values."
        )


def as_lengths(layer: nn.Module, valid_lens: Tensor | None, queries: Tensor, count: int) -> Mask:
    """`valid_lens` as a mask of so many keys: None, (batch,) or (batch, queries)."""
    if valid_lens is None:
        return Full()
    check_lengths(type(layer).__name__, valid_lens, (*queries.shape[:2], count), queries.device)
    return Lengths(valid_lens)


def check_lengths(called: str, valid_lens: Tensor, sizes: Sequence[int], device: torch.device) -> None:
    """Raise unless these are lengths for (batch, queries, keys)."""
    batch, n, m = sizes
    if not isinstance(valid_lens, Tensor):
        raise RegardError(f"{called} valid_lens must be a tensor of integers, got {type(valid_lens).__name__}.")
    if valid_lens.ndim not in (1, 2) or any(a != b for a, b in zip(valid_lens.shape, (batch, n), strict=False)):
        raise RegardError(
            f"{called} valid_lens must be (batch,)=({batch},) or (batch, queries)=({batch}, {n}),"
            f" got shape {tuple(valid_lens.shape)}."
        )
    if problem := misfit_integers("valid_lens", valid_lens, device, 0, m, "the number of keys"):
        raise RegardError(f"{called} {problem}")


def join_dtypes(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All three in autocast's dtype where it is on; as they are elsewhere."""
    device = query.device.type
    if not torch.is_autocast_enabled(device):
        return query, key, value
    dtype = torch.get_autocast_dtype(device)
    return query.to(dtype), key.to(dtype), value.to(dtype)


def check_rate(layer: nn.Module, dropout: float) -> None:
    """Raise unless `dropout` is a probability below one."""
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise RegardError(f"{type(layer).__name__} dropout must lie in [0, 1), got {dropout}.")
