"""Which calls are steps of decoding: they continue the module's call before them."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class _Call:
    """A module's last call: when it was, its keys and its query in short, and within which runs of modules it was."""

    at: int
    keys: Tensor
    query: Tensor
    # the numbers of these runs, outermost first, and how many calls of the module each of them has had
    within: tuple[int, ...]
    counts: tuple[int, ...]


class Running:
    """The stack of modules that run in this thread, with their arguments and a number for each run."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._numbers = itertools.count()

    @property
    def stack(self) -> list[tuple[nn.Module, Any, Any, int]]:
        found: list[tuple[nn.Module, Any, Any, int]] = self._here.__dict__.setdefault("stack", [])
        return found

    def enter(self, module: nn.Module, args: Any, options: Any) -> None:
        self.stack.append((module, args, options, next(self._numbers)))

    def leave(self, module: nn.Module) -> None:
        # a module that was stopped before it was entered is left all the same
        if self.stack and self.stack[-1][0] is module:
            self.stack.pop()


class Follower:
    """Follows the calls of a model's attentions, looked at or not, and tells which continue the one before."""

    def __init__(self) -> None:
        self._now = 0
        self._last: dict[str, _Call] = {}
        # when an attention to itself ran, began anew or went on for the last time
        self._ran = self._began = self._went_on = -1

    def forget(self, name: str) -> None:
        """Forget a module's last call: nothing continues a call without a look."""
        self._last.pop(name, None)

    def follow(self, name: str, kind: str, query: Tensor, key: Tensor, within: tuple[int, ...] = ()) -> bool:
        """Whether this call of a module continues its last one, over the same keys.

        A call to itself does where the cache has grown by its queries and all keys before them are those of the last
        call, for each sequence and head. A call to others does where its keys are the same and the decoder went on:
        its attentions to itself did, or, where there are none, it is one query more of a loop. `within` are the runs of
        modules that the call is made in.
        """
        self._now += 1
        before, n = self._last.get(name), query.shape[-2]
        call = _Call(self._now, _digest(key), _digest(query), within, _count(before, within))
        self._last[name] = call
        goes_on = before is not None and _is_grown(before.keys, call.keys, n)
        if kind == "self" or goes_on:
            self._ran = self._now
            if goes_on:
                self._went_on = self._now
            elif before is not None:
                self._began = self._now
            return goes_on
        if before is None or self._began > before.at or not _is_grown(before.keys, call.keys, 0):
            return False
        if self._ran > before.at:
            return self._went_on > before.at
        return n == 1 and _is_loop(before, call)


def _share(before: _Call, within: tuple[int, ...]) -> int:
    """How many runs of modules, outermost first, have both calls."""
    return sum(itertools.takewhile(bool, map(int.__eq__, before.within, within)))


def _count(before: _Call | None, within: tuple[int, ...]) -> tuple[int, ...]:
    shared = 0 if before is None else _share(before, within)
    counts = () if before is None else before.counts
    return tuple(1 + (counts[at] if at < shared else 0) for at in range(len(within)))


def _is_loop(before: _Call, call: _Call) -> bool:
    """Whether two calls are two turns of a loop.

    The runs that they do not share must be turns: what has had several calls was a loop itself, and is over. Where the
    loop is the caller's own, the same query once more is the same text once more, and another query is one more turn:
    nothing tells a decoder's next step from another question to the same memory.
    """
    shared = _share(before, call.within)
    if shared < len(before.within) and before.counts[shared] > 1:
        return False
    return shared > 0 or not torch.equal(before.query, call.query)


def _digest(key: Tensor) -> Tensor:
    """Two numbers for each row: what reorders a cache, or has other keys in it, changes them."""
    # halves: a norm may leave the sum of a whole row at zero
    half, dtype = key.shape[-1] // 2, torch.promote_types(key.dtype, torch.float32)
    return torch.stack([x.sum(-1, dtype=dtype) for x in (key[..., :half], key[..., half:])], -1)


def _is_grown(before: Tensor, after: Tensor, n: int) -> bool:
    """Whether these are the keys before, and n more."""
    m = before.shape[-2]
    if not m or after.shape[-2] != m + n or before.shape[:-2] != after.shape[:-2]:
        return False
    if (before.dtype, before.device) != (after.dtype, after.device):
        return False
    after = after[..., :m, :]
    # sums of the same numbers in another order differ in their last bits
    size = float(before.abs().nan_to_num(0.0, 0.0, 0.0).amax())
    least = 1e-12 if before.dtype == torch.float64 else 4e-6
    return torch.allclose(before, after, rtol=0.0, atol=least * size, equal_nan=True)
