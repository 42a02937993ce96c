"""Which calls go on where the module's call before them ended."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Call:
    """A module's last call: when it was, and its keys in short."""

    at: int
    digest: Tensor


class Follower:
    """Follows the calls of a model's attentions, also of those that nobody looks at."""

    def __init__(self) -> None:
        self._now = 0
        self._last: dict[str, _Call] = {}
        # when an attention to itself ran, began anew or went on for the last time
        self._ran = self._began = self._went_on = -1
        # when the parts of the model were entered; "" is the model itself
        self._entered: dict[str, int] = {}

    def enter(self, name: str) -> None:
        """A module of this name begins; "" is the model."""
        self._entered[name.partition(".")[0]] = self._now

    def forget(self, name: str) -> None:
        """Nothing goes on from a call that there is no look at."""
        self._last.pop(name, None)

    def follow(self, name: str, kind: str, key: Tensor, n: int) -> bool:
        """Whether this call of a module, with n queries, goes on where its last one ended, over the same keys.

        A call to itself does where the cache has grown by its queries and all keys before them are those of the last
        call, for each sequence and head. A call to others does where its keys are the same and the decoder went on:
        its attentions to itself did, or, where there are none, nothing but its own part of the model has run.
        """
        self._now += 1
        digest, before = _digest(key), self._last.get(name)
        self._last[name] = _Call(self._now, digest)
        if kind == "self":
            goes_on = before is not None and _is_grown(before.digest, digest, n)
            self._ran = self._now
            if goes_on:
                self._went_on = self._now
            elif before is not None:
                self._began = self._now
            return goes_on
        if before is None or self._began > before.at or not _is_grown(before.digest, digest, 0):
            return False
        if self._ran > before.at:
            return self._went_on > before.at
        own = name.partition(".")[0]
        return all(at < before.at for part, at in self._entered.items() if part != own)


def _digest(key: Tensor) -> Tensor:
    """Two numbers for each key: what reorders a cache, or has other keys in it, changes them."""
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
