"""Which pairs may meet and what position adds, written out pair by pair from plain numbers: loops, no library."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

# a mask as plain data: its name, then what it needs
Spec = tuple[Any, ...]


def write_mask(spec: Spec, b: int, h: int, n: int, m: int) -> Tensor:
    """The mask of a call as bools (b, h, n, m)."""
    name, *rest = spec
    if name == "and":
        return write_mask(rest[0], b, h, n, m) & write_mask(rest[1], b, h, n, m)
    if name == "or":
        return write_mask(rest[0], b, h, n, m) | write_mask(rest[1], b, h, n, m)
    if name == "not":
        return ~write_mask(rest[0], b, h, n, m)
    if name == "allowed":
        # leading axes are the caller's: give the heads theirs, then count sequences
        tensor, pairs = rest
        return tensor.expand(pairs).reshape(b, h, n, m).clone()
    allowed = np.zeros((b, n, m), dtype=bool)
    for s in range(b):
        for i in range(n):
            _write_row(allowed[s, i], name, rest, s, i, n)
    return torch.from_numpy(allowed)[:, None].expand(b, h, n, m).clone()


def _write_row(row: np.ndarray, name: str, rest: list[Any], s: int, i: int, n: int) -> None:
    m = len(row)
    if name == "full":
        row[:] = True
    elif name == "lengths":
        (lengths,) = rest
        row[: lengths[s][i] if isinstance(lengths[s], list) else lengths[s]] = True
    elif name == "diagonal":
        before, after, offset = rest
        place = i + (m - n if offset is None else offset[s] if isinstance(offset, list) else offset)
        row[0 if before is None else max(0, place - before) : max(0, min(m, place + after + 1))] = True
    elif name == "document":
        keys, queries = rest
        row[:] = np.array(keys[s % len(keys)], dtype=int) == queries[s % len(queries)][i]
    elif name == "edges":
        row[[key for query, key in rest[0] if query == i]] = True
    elif name == "grid":
        width, (rows, columns) = rest
        down, right = (np.abs(np.arange(m) // width - i // width), np.abs(np.arange(m) % width - i % width))
        row[:] = (down <= rows) & (right <= columns)
    else:
        raise AssertionError(name)


def write_bias(
    name: str, tensors: dict[str, Tensor], facts: dict[str, Any], n: int, m: int, dtype: torch.dtype
) -> Tensor:
    """What is added to the scores, broadcastable to (b, h, n, m) and differentiable in `tensors`."""
    if name == "dense":
        b, h = facts["bh"]
        return tensors["bias.0"].expand(facts["pairs"]).reshape(b, h, n, m)
    if name == "alibi":
        slopes = tensors["bias.0"] if "bias.0" in tensors else facts["slopes"].to(dtype)
        keys, queries = (torch.arange(x, device=slopes.device) for x in (m, n))
        return -slopes[:, None, None] * (keys[None, :] - (queries[:, None] + facts["offset"])).abs().to(dtype)
    if name == "relative":
        return tensors["bias.0"][:, facts["bucket"]]
    if name == "quadratic":
        width, cells = facts["width"], torch.arange(n, device=tensors["bias.0"].device)
        rows, columns = (cells // width).to(dtype), (cells % width).to(dtype)
        alpha, centre = tensors["bias.0"], tensors["bias.1"]
        down = (rows[None, :] - rows[:, None]) - centre[:, 0, None, None]
        right = (columns[None, :] - columns[:, None]) - centre[:, 1, None, None]
        return -alpha[:, None, None] * (down * down + right * right)
    raise AssertionError(name)


def write_buckets(n: int, m: int, offset: int, **rule: Any) -> Tensor:
    """The bucket of each pair."""
    ahead = np.arange(m)[None, :] - (np.arange(n)[:, None] + offset)
    places, at = np.unique(ahead, return_inverse=True)
    known = np.array([_bucket(int(x), **rule) for x in places], dtype=int)
    return torch.from_numpy(known[at].reshape(n, m))


def list_slopes(heads: int) -> list[float]:
    """ALiBi's slopes as its authors publish them: a geometric series from 2^(−8/h), filled up from twice the heads."""
    if math.log2(heads).is_integer():
        first = 2.0 ** (-8.0 / heads)
        return [first ** (k + 1) for k in range(heads)]
    closest = 2 ** math.floor(math.log2(heads))
    return list_slopes(closest) + list_slopes(2 * closest)[0::2][: heads - closest]


@functools.cache
def _bucket(ahead: int, buckets: int, most: int, two_sided: bool) -> int:
    """T5's bucket of one relative position, as `transformers` computes it: key minus query, logarithms in float32."""
    result = 0
    if two_sided:
        buckets //= 2
        if ahead > 0:
            result += buckets
        ahead = abs(ahead)
    else:
        ahead = -min(ahead, 0)
    exact = buckets // 2
    if ahead < exact:
        return result + ahead
    grown = torch.log(torch.tensor(float(ahead)) / exact) / math.log(most / exact) * (buckets - exact)
    return result + min(exact + int(grown), buckets - 1)


# random bits, once more from their description: lowbias32 of seed, sequence, head, query, salt and key


def _mix(x: Any) -> Any:
    x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def write_uniform(seed: int, shape: tuple[int, int, int, int], salt: int) -> Tensor:
    """The library's random numbers in (0, 1), row by row."""
    b, h, n, m = shape
    keys = np.array([_mix(j) for j in range(m)], dtype=np.uint64)
    numbers = np.zeros(shape)
    for s in range(b):
        of_sequence = _mix((s + seed) % 2**32)
        for t in range(h):
            of_head = _mix((of_sequence + t) % 2**32)
            for i in range(n):
                row = _mix(_mix((of_head + i) % 2**32) ^ salt)
                numbers[s, t, i] = ((_mix((keys + np.uint64(row)) % 2**32) >> 9) + 0.5) * 2.0**-23
    return torch.from_numpy(numbers)
