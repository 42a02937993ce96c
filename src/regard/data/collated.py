"""Batches of any examples (images, sounds, nodes), made by a collate function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from regard.data.buckets import Buckets


class Collated(Buckets):
    """A data loader with a collate function: `collate` makes a batch of examples, which are read only then.

    >>> batches = Collated([3, 1, 4], max, batch_size=2, shuffle=False)
    >>> len(batches), list(batches.walk()), list(batches.walk(start=1))
    (2, [3, 4], [4])

    With `lengths` those of like length meet. The order of an epoch, going on in its middle and shares of processes are
    as in `Batches`; other options are those of `Buckets`.
    """

    def __init__(
        self, examples: Sequence[Any], collate: Callable[[list[Any]], Any], *, lengths: Sequence[int] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        self.examples, self.collate = examples, collate
        super().__init__([1] * len(examples) if lengths is None else lengths, **{"what": "example", **options})

    def make(self, numbers: Tensor) -> Any:
        return self.collate([self.examples[number] for number in numbers.tolist()])
