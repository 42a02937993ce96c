"""A dataset of sentence pairs: one file with both sides, two files line by line, or the phrasebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from regard.core import RegardError
from regard.data.pairs import Pair, Pairs, read_aligned, read_pairs
from regard.data.phrasebook import split_pairs
from regard.data.split import Split
from regard.tasks.reading.corpus import PHRASEBOOK, TextExamples
from regard.tasks.training.examples import SHARED, Fits, is_list

# of the phrasebook's held-out sentences the first are the test and the next validate
PHRASES = 500
# sentences of a rare pattern are met again and again, as the patterns with two words to choose are met in others
LEAST = 500
PAIRS: Fits = {
    **SHARED,
    "data": lambda x: is_list(x, str, (1, 2)),
    "valid": lambda x: is_list(x, str, (0, 1, 2)),
    "columns": lambda x: is_list(x, int, (2,)) and min(x) >= 0,
    "keys": lambda x: is_list(x, str, (2,)),
    "swap": lambda x: type(x) is bool,
    "member": lambda x: x is None or type(x) is str,
}


def open_pairs(
    paths: Sequence[str],
    *,
    columns: tuple[int, int] = (0, 1),
    keys: tuple[str, str] = ("source", "target"),
    swap: bool = False,
    member: str | None = None,
) -> Pairs:
    """The sentence pairs of one file with both sides, or of two that are aligned line by line.

    >>> next(iter(open_pairs(["phrasebook"], swap=True)))
    ('do you like the soup of changsha', '你喜欢长沙的汤吗')

    "phrasebook" is the test of the embedded sentences; `columns`, `keys` and `member` are those of `read_pairs`.
    """
    if list(paths) == [PHRASEBOOK]:
        pairs: Iterable[Pair] = split_pairs()[1][:PHRASES]
        found = Pairs(lambda: iter(pairs), name=PHRASEBOOK)
    elif len(paths) == 1:
        return read_pairs(paths[0], columns=columns, keys=keys, swap=swap, member=member)
    elif len(paths) == 2 and member is not None:
        raise RegardError(f"member={member!r} names a file in a .zip, and there are two files: leave member out.")
    elif len(paths) == 2:
        found = read_aligned(*paths)
    else:
        raise RegardError(f"data must be one file of pairs or two files line by line, got {len(paths)} names.")
    return Pairs(lambda: ((target, source) for source, target in found), name=found.name) if swap else found


@dataclass(frozen=True)
class PairCorpus(TextExamples):
    """A dataset of sentence pairs; `data` is what `open_pairs` takes.

    >>> train, valid, test = PairCorpus().part()
    >>> len(valid), len(test), len(train) > 50_000
    (500, 500, True)
    """

    columns: tuple[int, int] = (0, 1)
    keys: tuple[str, str] = ("source", "target")
    swap: bool = False
    member: str | None = None

    fits: ClassVar[Fits] = PAIRS
    called: ClassVar[str] = "pairs"

    def open(self, paths: tuple[str, ...]) -> Pairs:
        return open_pairs(paths, columns=self.columns, keys=self.keys, swap=self.swap, member=self.member)

    def draw(self) -> Split:
        train, asked = ([self._turn(pair) for pair in part] for part in split_pairs(least=LEAST))
        return Split(train, asked[PHRASES : 2 * PHRASES], asked[:PHRASES])

    def _turn(self, pair: Pair) -> Pair:
        return pair[::-1] if self.swap else pair
