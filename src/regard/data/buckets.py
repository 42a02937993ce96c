"""Bucketing by length: sequences of similar length in a batch, shuffled by a seed and the epoch; for all batches."""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.data.tokens import PAD
from regard.mask.integer import remember_range

Ids = Sequence[int]


class Buckets:
    """The base of data loaders: which sequences, by number, make each batch, bucketed by length.

    >>> buckets = Buckets([2, 5, 1, 5], batch_size=2, shuffle=False)
    >>> len(buckets), [numbers.tolist() for numbers in buckets.walk()]
    (2, [[1, 3], [0, 2]])

    `Batches` tells what holds for an epoch. `kept` are the numbers of the sequences that are not too long, `dropped` is
    how many are. `what` names a sequence where there are too few. A subclass says by `make` what a batch is.
    """

    def __init__(
        self,
        lengths: Sequence[int] | Tensor,
        *,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        max_length: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        what: str = "sequence",
    ) -> None:
        if batch_size is None and max_tokens is None:
            raise RegardError("batches need a size: give batch_size, max_tokens or both.")
        for name, value in (("batch_size", batch_size), ("max_tokens", max_tokens), ("max_length", max_length)):
            if value is not None and value < 1:
                raise RegardError(f"{name} must be at least 1, got {value}.")
        if not 0 <= rank < world_size:
            raise RegardError(f"rank must be from 0 to world_size - 1, got rank={rank}, world_size={world_size}.")
        self.shuffle, self.seed, self.rank, self.world_size = shuffle, seed, rank, world_size
        # an empty sequence takes a place too
        places = torch.as_tensor(lengths, dtype=torch.long).clamp(min=1)
        limits = [limit for limit in (max_length, max_tokens) if limit is not None]
        kept = places <= min(limits) if limits else torch.ones_like(places, dtype=torch.bool)
        self.kept = kept.nonzero().flatten()
        self._lengths = places[self.kept]
        self.dropped = len(places) - len(self.kept)
        if len(self.kept) < world_size:
            raise RegardError(
                f"batches need a {what} for each of {world_size} processes, got {len(places)} {what}s, {self.dropped}"
                " of them too long: give more, or raise max_length and max_tokens."
            )
        self._ends = self._part(batch_size, max_tokens)

    def _part(self, batch_size: int | None, max_tokens: int | None) -> list[int]:
        """Where batches end among the sequences from longest to shortest: the same in every epoch."""
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

    def make(self, numbers: Tensor) -> Any:
        """The batch of the sequences with these numbers."""
        return numbers

    def walk(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """This process's share of each batch of an epoch, from batch `start` on."""
        if not 0 <= start <= len(self):
            raise RegardError(f"start must be from 0 to {len(self)} (the number of batches), got {start}.")
        order, batches = self._order(epoch)
        for batch in batches[start:]:
            first = self._ends[batch - 1] if batch else 0
            yield self.make(self.kept[order[first : self._ends[batch]][self.rank :: self.world_size]])

    def _order(self, epoch: int) -> tuple[Tensor, list[int]]:
        """The kept sequences from longest to shortest, and the order of the batches cut from these."""
        if not self.shuffle:
            return self._lengths.argsort(descending=True, stable=True), list(range(len(self)))
        chance = draw_by(self.seed, epoch)
        # sequences of one length change places, and a batch ends where it did
        mixed = torch.randperm(len(self._lengths), generator=chance)
        order = mixed[self._lengths[mixed].argsort(descending=True, stable=True)]
        return order, torch.randperm(len(self), generator=chance).tolist()


def draw_by(*facts: int) -> torch.Generator:
    """A random generator that is seeded by these numbers alone.

    >>> torch.equal(torch.rand(3, generator=draw_by(1, 2)), torch.rand(3, generator=draw_by(1, 2)))
    True
    """
    digest = hashlib.sha256(" ".join(map(str, facts)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


class Packed:
    """Rows of ids, packed into one tensor: a padded batch of some of them is made without a look at each.

    >>> Packed([[5, 6, 7], [8, 9]]).pad(torch.tensor([1, 0]))
    (tensor([[8, 9, 0],
            [5, 6, 7]]), tensor([2, 3]))
    """

    def __init__(self, rows: Iterable[Ids]) -> None:
        ids, lengths = array("q"), array("q")
        for row in rows:
            ids.extend(row)
            lengths.append(len(row))
        # so that a batch may read on behind its last row
        ids.extend([PAD] * max(lengths, default=0))
        self._ids, self.lengths = (torch.frombuffer(x or array("q", [0]), dtype=torch.long) for x in (ids, lengths))
        self._starts = self.lengths.cumsum(0) - self.lengths

    def pad(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The rows with these numbers, padded, and their lengths."""
        lengths = self.lengths[numbers]
        places = torch.arange(int(lengths.max()))
        at = self._starts[numbers, None] + places
        # three times as fast as to index by `at`
        ids = self._ids.index_select(0, at.flatten()).view_as(at)
        return ids.masked_fill_(places >= lengths[:, None], PAD), lengths


def send(parts: Mapping[str, Tensor | None], device: torch.device | str, lengths: str) -> dict[str, Tensor]:
    """The tensors of a batch, by name, on a device; a GPU gets them without waiting, and knows the range of `lengths`.

    >>> send({"ids": torch.ones(1, 3), "lengths": torch.tensor([2]), "labels": None}, "meta", "lengths").keys()
    dict_keys(['ids', 'lengths'])
    """
    given = {name: part for name, part in parts.items() if part is not None}
    if torch.device(device).type != "cuda" or any(part.device.type != "cpu" for part in given.values()):
        return {name: part.to(device, non_blocking=True) for name, part in given.items()}
    moved = dict[str, Tensor]()
    for dtype in {part.dtype: None for part in given.values()}:
        moved |= _send_together({name: part for name, part in given.items() if part.dtype == dtype}, device)
    if lengths in given and given[lengths].numel():
        # nor does a model have to ask the GPU for it
        remember_range(moved[lengths], int(given[lengths].min()), int(given[lengths].max()), is_seen=True)
    return {name: moved[name] for name in given}


def _send_together(parts: Mapping[str, Tensor], device: torch.device | str) -> dict[str, Tensor]:
    """Tensors of one dtype on a GPU, by one copy; each begins where kernels find it aligned."""
    sizes, pieces = list[int](), list[Tensor]()
    for part in parts.values():
        pieces += part.flatten(), part.new_zeros(-part.numel() % 16)
        sizes += map(len, pieces[-2:])
    # from memory that is not pinned, a copy may wait for all that the GPU has yet to do
    whole = torch.cat(pieces).pin_memory().to(device, non_blocking=True)
    # each counts its own changes: to write to one is none of another
    there = whole.unsafe_split_with_sizes(sizes)
    return {name: x.view(part.shape) for (name, part), x in zip(parts.items(), there[::2], strict=True)}


def pad(rows: Sequence[Ids], fill: int = PAD) -> tuple[Tensor, Tensor]:
    """Pad rows of ids to one tensor, `fill` behind the shorter ones, and their lengths.

    >>> pad([[5, 6, 7], [8]])
    (tensor([[5, 6, 7],
            [8, 0, 0]]), tensor([3, 1]))
    """
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
    longest = int(lengths.max()) if len(rows) else 0
    filled = torch.full((len(rows), longest), fill, dtype=torch.long)
    filled[torch.arange(longest) < lengths[:, None]] = torch.tensor(list(itertools.chain(*rows)), dtype=torch.long)
    return filled, lengths
