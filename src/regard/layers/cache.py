"""The KV cache of step-by-step decoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.mask.integer import misfit_integers

# room for this many positions at first
_FIRST = 16


class Cache:
    """A KV cache: the projected keys and values of one layer, one batch and the positions so far.

    >>> from regard.layers.multihead import SelfAttention
    >>> from regard.mask import Causal
    >>> layer, cache = SelfAttention(num_hiddens=8, num_heads=2), Cache()
    >>> for step in torch.zeros(5, 1, 1, 8):
    ...     out = layer(step, mask=Causal(), cache=cache)
    >>> cache
    Cache(length=5)

    Each layer has its own. Without gradients, as under `torch.no_grad()`, a step writes into a buffer that doubles when
    it is full; with them it makes new tensors, so that training through a cache has the gradients of the whole pass.
    `is_static` is for cross-attention: the first call's keys and values are projected and kept, and later calls
    use them again, whether they bring them or None.
    """

    def __init__(self, max_length: int | None = None, *, is_static: bool = False) -> None:
        if max_length is not None and max_length < 1:
            raise RegardError(f"Cache max_length must be at least 1, got {max_length}.")
        self.max_length, self.is_static = max_length, is_static
        self.length = 0
        self._held: tuple[Tensor, Tensor] | None = None
        # how many positions the held tensors may be written to: none where autograd may have kept them
        self._room = 0
        self._is_of_inference = False
        self._layer: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored yet."""
        return self._held is None

    def read(self) -> tuple[Tensor, Tensor]:
        """Keys and values so far, (batch, heads, length, width) each."""
        if self._held is None:
            raise RegardError("Cache is empty: call a layer with it first.")
        key, value = self._held
        return key[:, :, : self.length], value[:, :, : self.length]

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values (batch, heads, positions, width) after those so far, and return all."""
        total = self._check(key, value)
        if torch.is_grad_enabled():
            # autograd keeps what it was given: nothing is written over
            if self._held is not None:
                old_key, old_value = self.read()
                key, value = torch.cat((old_key, key), 2), torch.cat((old_value, value), 2)
            self._held, self._room = (key, value), 0
        else:
            # a tensor made in inference mode cannot be written to outside of it
            rows = self._held
            if rows is None or total > self._room or (self._is_of_inference and not _is_inferring()):
                rows = self._grow(total, key, value)
            for held, new in zip(rows, (key, value), strict=True):
                held[:, :, self.length : total] = new
        self.length = total
        return self.read()

    def reuse(self, called: str, queries: Tensor, keys: Tensor | None, values: Tensor | None) -> tuple[Tensor, Tensor]:
        """The keys and values of a static cache; `keys` and `values` are None or the rows that it was filled with."""
        key, value = self.read()
        batch, m = key.shape[0], key.shape[2]
        if queries.shape[0] != batch:
            raise RegardError(
                f"{called} queries must have the static cache's batch of {batch}, got {queries.shape[0]}: reorder the"
                " cache, or take a new one."
            )
        for name, rows in (("keys", keys), ("values", values)):
            if rows is not None and tuple(rows.shape[:2]) != (batch, m):
                raise RegardError(
                    f"{called} {name} must be None or those of the static cache, {m} for each of {batch} sequences,"
                    f" got shape {tuple(rows.shape)}."
                )
        return key, value

    def truncate(self, length: int) -> None:
        """Keep the first `length` positions alone; after 0 the cache is empty."""
        if not 0 <= length <= self.length:
            raise RegardError(
                f"Cache holds {self.length} positions and can be truncated to 0 up to that, not {length}."
            )
        self.length = length
        if length == 0:
            self._held, self._room, self._layer = None, 0, None

    def reorder(self, indices: Tensor) -> None:
        """Replace sequence s by sequence `indices[s]`, as beam search does with its beams.

        There may be more or fewer of them than before.
        """
        if not isinstance(indices, Tensor) or indices.ndim != 1:
            got = f"shape {tuple(indices.shape)}" if isinstance(indices, Tensor) else type(indices).__name__
            raise RegardError(f"Cache reorder takes a vector of sequence numbers, got {got}.")
        if self._held is None:
            return
        key, value = self._held
        if problem := misfit_integers("indices", indices, key.device, 0, key.shape[0] - 1, "the last sequence"):
            raise RegardError(f"Cache reorder {problem}")
        indices = indices.long()
        self._held = key.index_select(0, indices), value.index_select(0, indices)
        self._is_of_inference = _is_inferring()

    def claim(self, layer: nn.Module) -> None:
        """Raise unless this layer filled the cache: two layers with one cache would read each other's keys."""
        if torch.compiler.is_compiling():
            return
        if self._layer not in (None, id(layer)):
            raise RegardError("Cache was filled by another layer: give each layer a Cache() of its own.")
        self._layer = id(layer)

    def _check(self, key: Tensor, value: Tensor) -> int:
        """The length with these appended; raises where they do not fit."""
        if self.is_static and self._held is not None:
            raise RegardError("Cache is static and filled: make a new one, or truncate it to 0.")
        for new, held in zip((key, value), self._held or (key, value), strict=True):
            facts = [(x.shape[0], x.shape[1], x.shape[3], x.dtype, x.device) for x in (held, new)]
            if facts[0] != facts[1]:
                have, got = (
                    f"{tuple(shape)} in {str(dtype).removeprefix('torch.')} on {device}"
                    for *shape, dtype, device in facts
                )
                raise RegardError(
                    f"Cache holds (batch, heads, width)={have}, and was given {got}: another batch takes a new Cache()."
                )
        total = self.length + key.shape[2]
        if self.max_length is not None and total > self.max_length:
            raise RegardError(
                f"Cache max_length={self.max_length} is exceeded: it holds {self.length} positions and was given"
                f" {key.shape[2]} more. Truncate it, or allow more."
            )
        return total

    def _grow(self, total: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        room = max(total, 2 * self.length, _FIRST)
        if self.max_length is not None:
            room = min(room, self.max_length)
        grown = [x.new_empty(*x.shape[:2], room, x.shape[3]) for x in (key, value)]
        if self._held is not None:
            for new, old in zip(grown, self.read(), strict=True):
                new[:, :, : self.length] = old
        self._held, self._room = (grown[0], grown[1]), room
        self._is_of_inference = _is_inferring()
        return self._held

    def __repr__(self) -> str:
        shown = {"length": self.length, "max_length": self.max_length, "is_static": self.is_static or None}
        return f"Cache({', '.join(f'{name}={value}' for name, value in shown.items() if value is not None)})"


def _is_inferring() -> bool:
    # a compiler neither knows of inference mode nor makes its tensors
    return not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
