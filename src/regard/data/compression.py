"""Sentence compression as labels: each word of a sentence is kept in the shorter one, or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from regard.core import RegardError
from regard.data.words import Word, cut_words

KEEP, DROP = "keep", "drop"
# time and memory grow with the product of both sides: more is no sentence
MOST_WORDS = 2_000


def mark_kept(words: Sequence[str], short: Sequence[str]) -> tuple[bool, ...]:
    """Which words of a sentence the shorter one keeps: a longest common subsequence, case ignored.

    >>> mark_kept(("The", "cat", "sat", "on", "the", "mat"), ("the", "mat"))
    (False, False, False, False, True, True)

    Of several with as many words, one in the fewest runs of neighbours is taken, and of these the earliest.
    """
    folded, wanted = [x.casefold() for x in words], [x.casefold() for x in short]
    n, m = len(folded), len(wanted)
    # a word outweighs all runs there can be
    weight = n + 1
    # best[i][was][j]: of words from i and wanted from j, `was` saying whether word i - 1 is kept
    best = [([0] * (m + 1), [0] * (m + 1)) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        word, (skip, kept) = folded[i], best[i + 1]
        apart, joined = best[i]
        for j in range(m - 1, -1, -1):
            one, two = max(skip[j], apart[j + 1]), max(skip[j], joined[j + 1])
            if word == wanted[j]:
                gain = kept[j + 1] + weight
                one, two = max(one, gain - 1), max(two, gain)
            apart[j], joined[j] = one, two
    marks: list[bool] = []
    j = 0
    for i, word in enumerate(folded):
        was = bool(marks) and marks[-1]
        value = best[i][was][j]
        # the first that fits leaves the most to come
        place = next(
            (k for k in range(j, m) if word == wanted[k] and best[i + 1][True][k + 1] + weight - (not was) == value),
            None,
        )
        marks.append(place is not None)
        j = j if place is None else place + 1
    return tuple(marks)


class Kept:
    """Pairs of a sentence and a shorter one, as words with the labels keep and drop.

    >>> kept = Kept([("The cat sat.", "Cat sat."), ("It rains.", "Rain.")])
    >>> list(kept)
    [(('The', 'cat', 'sat', '.'), ('drop', 'keep', 'keep', 'keep')), (('It', 'rains', '.'), ('drop', 'drop', 'keep'))]
    >>> kept.total, kept.reworded, kept.share
    (2, 1, 0.5)

    Of the last whole walk, `total` is how many pairs there were, and `reworded` how many of the shorter sentences are
    no subsequence of the longer, in any case: these cannot be made by dropping words, and `share` is their share.
    `cut` makes the words; more than 2,000 are refused.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], cut: Callable[[str], Iterable[Word]] = cut_words) -> None:
        self.pairs, self.cut = pairs, cut
        self.total = self.reworded = 0

    @property
    def share(self) -> float:
        return self.reworded / self.total if self.total else 0.0

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        total = reworded = 0
        for sentence, short in self.pairs:
            words, wanted = (tuple(word for word, _, _ in self.cut(text)) for text in (sentence, short))
            if max(len(words), len(wanted)) > MOST_WORDS:
                raise RegardError(
                    f"the pair that begins with {sentence[:60]!r} has a side of more than {MOST_WORDS:,} words: cut it,"
                    " or leave it out."
                )
            marks = mark_kept(words, wanted)
            total += 1
            reworded += sum(marks) < len(wanted)
            yield words, tuple(KEEP if mark else DROP for mark in marks)
        self.total, self.reworded = total, reworded
