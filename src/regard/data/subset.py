"""A subset of a dataset by index: lazily read, so that data need not lie in memory, or part of one graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload


class Subset(Sequence[Any]):
    """The examples of a dataset at some indices, each read when it is asked for.

    >>> part = Subset("abcdef", [4, 0, 2])
    >>> len(part), part[0], list(part[1:])
    (3, 'e', ['a', 'c'])

    `is_whole` says that an example is nothing without the others, as a node is without its graph: then the source is
    what the data are, and the numbers say which of it are meant.
    """

    def __init__(self, source: Any, numbers: Iterable[int], *, is_whole: bool = False) -> None:
        self.source, self.numbers, self.is_whole = source, list(numbers), is_whole

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Subset: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return Subset(self.source, self.numbers[at], is_whole=self.is_whole)
        return self.source[self.numbers[at]]

    def __iter__(self) -> Iterator[Any]:
        return (self.source[number] for number in self.numbers)
