"""Examples of any kind as batches, which a function makes of them: pictures, sounds, nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from regard.data.buckets import Buckets


class Collated:
    """Batches of a sequence, an epoch at a time; `collate` makes one of its examples, which are asked for only then.

    >>> batches = Collated([3, 1, 4], sum, batch_size=2, shuffle=False)
    >>> len(batches), list(batches.walk()), list(batches.walk(start=1))
    (2, [4, 4], [4])

    The order of an epoch, going on in its middle and shares of processes are as in `Batches`.
    """

    def __init__(
        self, examples: Sequence[Any], collate: Callable[[list[Any]], Any], *, batch_size: int, shuffle: bool = True,
        seed: int = 0, rank: int = 0, world_size: int = 1, what: str = "example",
    ) -> None:  # fmt: skip
        self.examples, self.collate = examples, collate
        self._buckets = Buckets(
            [1] * len(examples), batch_size=batch_size, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size,
            what=what,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._buckets)

    def walk(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from number `start` on."""
        for numbers in self._buckets.walk(epoch, start):
            yield self.collate([self.examples[number] for number in numbers.tolist()])
