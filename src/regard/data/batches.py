"""Batches of token ids: sentences of like length together, in an order that a seed and the epoch decide."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.core import RegardError
from regard.data.tokens import BOS, EOS, PAD

Ids = Sequence[int]


class Batch(NamedTuple):
    """Sentence pairs as tensors, padded with <pad>; a length counts what is not padding.

    `source` ends in <eos>. `inputs` is <bos> and the target, `outputs` the target and <eos>: what a decoder is given,
    and what it should answer, position by position. `numbers` says which of the pairs these are.
    """

    source: Tensor
    source_lengths: Tensor
    inputs: Tensor
    outputs: Tensor
    target_lengths: Tensor
    numbers: Tensor

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        return Batch(*(part.to(device, non_blocking=True) for part in self))


class Batches:
    """Pairs of token ids as padded batches, an epoch at a time.

    >>> batches = Batches([([7, 8], [9]), ([5], [6]), ([5, 6], [7, 8])], batch_size=2, seed=1)
    >>> sorted(len(batch.numbers) for batch in batches.walk(epoch=0))
    [1, 2]
    >>> (batch,) = Batches([([7, 8], [9]), ([5], [6])], batch_size=2, shuffle=False).walk()
    >>> batch.source.tolist(), batch.inputs.tolist(), batch.outputs.tolist(), batch.source_lengths.tolist()
    ([[7, 8, 2], [5, 2, 0]], [[1, 9], [1, 6]], [[9, 2], [6, 2]], [3, 2])

    A batch has at most `batch_size` pairs, and with `max_tokens` at most so many places: pairs times the longest
    sentence of either side, padding and <eos> included. Pairs with a longer side than `max_length` or `max_tokens` are
    left out; `dropped` is how many.

    Every epoch has the same number of batches, and every pair is in one of them. Which pairs meet and in which order
    depends on `seed` and the epoch alone, so `walk(epoch, start)` goes on anywhere at once. Of `world_size`
    processes each takes its share of every batch, as many batches as the others: together they see the batches
    that one process with `world_size` times the `batch_size` sees. Only where fewer pairs are left at the end than
    there are processes, and the batch before has none to spare, these are left out of the epoch.

    With shuffle=False the longest come first, in every epoch.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[Ids, Ids]],
        *,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        max_length: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size is None and max_tokens is None:
            raise RegardError("batches need a size: give batch_size, max_tokens or both.")
        for name, value in (("batch_size", batch_size), ("max_tokens", max_tokens), ("max_length", max_length)):
            if value is not None and value < 1:
                raise RegardError(f"{name} must be at least 1, got {value}.")
        if not 0 <= rank < world_size:
            raise RegardError(f"rank must be from 0 to world_size - 1, got rank={rank}, world_size={world_size}.")
        self.pairs, self.shuffle, self.seed = pairs, shuffle, seed
        self.rank, self.world_size = rank, world_size
        # the longer side with its <eos> or <bos>
        lengths = torch.tensor([1 + max(len(source), len(target)) for source, target in pairs], dtype=torch.long)
        limits = [limit for limit in (max_length, max_tokens) if limit is not None]
        kept = lengths <= min(limits) if limits else torch.ones_like(lengths, dtype=torch.bool)
        self._kept = kept.nonzero().flatten()
        self._lengths = lengths[self._kept]
        self.dropped = len(pairs) - len(self._kept)
        if len(self._kept) < world_size:
            raise RegardError(
                f"batches need a pair for each of {world_size} processes, got {len(pairs)} pairs, {self.dropped}"
                " of them too long: give more, or raise max_length and max_tokens."
            )
        self._ends = self._part(batch_size, max_tokens)

    def _part(self, batch_size: int | None, max_tokens: int | None) -> list[int]:
        """Where batches end among the pairs from longest to shortest: the same in every epoch."""
        lengths = self._lengths.sort(descending=True).values.tolist()
        sizes, start = [0], 0
        while (start := start + sizes[-1]) < len(lengths):
            # the first is the longest
            each = len(lengths) if max_tokens is None else max_tokens // lengths[start]
            each = each if batch_size is None else min(each, batch_size)
            sizes.append(min(each * self.world_size, len(lengths) - start))
        if (missing := self.world_size - sizes[-1]) > 0:
            if sizes[-2] - missing >= self.world_size:
                sizes[-2:] = [sizes[-2] - missing, self.world_size]
            else:
                sizes.pop()
        return list(itertools.accumulate(sizes[1:]))

    def __len__(self) -> int:
        return len(self._ends)

    def walk(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from number `start` on."""
        if not 0 <= start <= len(self):
            raise RegardError(f"start must be from 0 to {len(self)} (the number of batches), got {start}.")
        order, numbers = self._order(epoch)
        for number in numbers[start:]:
            yield self._fill(order, number)

    def _order(self, epoch: int) -> tuple[Tensor, list[int]]:
        """The kept pairs from longest to shortest, and the order of the batches cut from these."""
        if not self.shuffle:
            return self._lengths.argsort(descending=True, stable=True), list(range(len(self)))
        digest = hashlib.sha256(f"{self.seed} {epoch}".encode()).digest()
        chance = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        # pairs of one length change places, and a batch ends where it did
        mixed = torch.randperm(len(self._lengths), generator=chance)
        order = mixed[self._lengths[mixed].argsort(descending=True, stable=True)]
        return order, torch.randperm(len(self), generator=chance).tolist()

    def _fill(self, order: Tensor, number: int) -> Batch:
        start = self._ends[number - 1] if number else 0
        chosen = self._kept[order[start : self._ends[number]][self.rank :: self.world_size]]
        pairs = [self.pairs[i] for i in chosen.tolist()]
        source, source_lengths = pad([[*source, EOS] for source, _ in pairs])
        inputs, target_lengths = pad([[BOS, *target] for _, target in pairs])
        outputs, _ = pad([[*target, EOS] for _, target in pairs])
        return Batch(source, source_lengths, inputs, outputs, target_lengths, chosen)


def pad(rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Rows of ids as one tensor, <pad> behind the shorter ones, and their lengths.

    >>> pad([[5, 6, 7], [8]])
    (tensor([[5, 6, 7],
            [8, 0, 0]]), tensor([3, 1]))
    """
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    filled = [[*row, *[PAD] * (longest - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.long).reshape(len(rows), longest), torch.tensor(lengths, dtype=torch.long)
