"""Padded batches of sentence pairs, bucketed by length, shuffled by a seed and the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.buckets import Buckets, Ids, Packed, send
from regard.data.tokens import BOS, EOS, PAD


class Batch(NamedTuple):
    """A padded batch of sentence pairs; a length counts what is not padding.

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
        """The batch on another device, without waiting for it."""
        return Batch(**send(self._asdict(), device, "source_lengths"))


class Batches(Buckets):
    """A data loader of sentence pairs: padded batches of token ids, an epoch at a time.

    >>> batches = Batches([([7, 8], [9]), ([5], [6]), ([5, 6], [7, 8])], batch_size=2, seed=1)
    >>> sorted(len(batch.numbers) for batch in batches.walk(epoch=0))
    [1, 2]
    >>> (batch,) = Batches([([7, 8], [9]), ([5], [6])], batch_size=2, shuffle=False).walk()
    >>> batch.source.tolist(), batch.inputs.tolist(), batch.outputs.tolist(), batch.source_lengths.tolist()
    ([[7, 8, 2], [5, 2, 0]], [[1, 9], [1, 6]], [[9, 2], [6, 2]], [3, 2])

    A batch has at most `batch_size` pairs, and with `max_tokens` at most so many places: pairs times the longest
    sentence of either side, padding and <eos> included. Pairs with a longer side than `max_length` or `max_tokens` are
    left out; `dropped` is how many. `longest` is the most tokens of a source that is left.

    Every epoch has the same number of batches, and every pair is in one of them. Which pairs meet and in which order
    depends on `seed` and the epoch alone, so `walk(epoch, start)` goes on anywhere at once. Of `world_size`
    processes each takes its share of every batch, as many batches as the others: together they see the batches
    that one process with `world_size` times the `batch_size` sees. Only where fewer pairs are left at the end than
    there are processes, and the batch before has none to spare, these are left out of the epoch.

    With shuffle=False the longest come first, in every epoch. Other options are those of `Buckets`.
    """

    def __init__(self, pairs: Sequence[tuple[Ids, Ids]], **options: Any) -> None:
        # every target with both of its marks: a decoder is given all but the last of it, and answers all but the first
        self._sources = Packed([*source, EOS] for source, _ in pairs)
        self._targets = Packed([BOS, *target, EOS] for _, target in pairs)
        # the longer side with its <eos> or <bos>
        places = torch.maximum(self._sources.lengths, self._targets.lengths - 1)
        super().__init__(places, what="pair", **options)
        self.longest = int(self._sources.lengths[self.kept].max()) - 1

    def make(self, numbers: Tensor) -> Batch:
        source, source_lengths = self._sources.pad(numbers)
        target, lengths = self._targets.pad(numbers)
        # each target's <eos> is no input
        inputs = target[:, :-1].masked_fill(torch.arange(1, target.shape[1]) >= lengths[:, None], PAD)
        return Batch(source, source_lengths, inputs, target[:, 1:].contiguous(), lengths - 1, numbers)
