"""Whether a run learned anything: a binomial test against chance or a baseline, on held-out examples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

# so many held-out examples are asked at the end of a run: enough to tell something from nothing
JUDGED = 200
# how seldom chance may do as well
LEVEL = 0.02
ADVICE = "check that what is to be learned follows from the data, then try more examples, more steps or another --lr"


def find_chance(right: int, count: int, share: float) -> float:
    """The p-value of a binomial test: how probable `right` or more of `count` are, each with probability `share`.

    >>> [round(find_chance(*x), 4) for x in ((6, 6, 0.5), (8, 12, 0.5), (600, 1000, 0.5), (5, 5, 1.0), (1, 9, 0.0))]
    [0.0156, 0.1938, 0.0, 1.0, 0.0]
    """
    if right <= 0 or share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    whole = math.lgamma(count + 1)
    logs = (
        whole - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * math.log(share) + (count - k) * math.log1p(-share)
        for k in range(right, count + 1)
    )
    return math.fsum(map(math.exp, logs))


def judge(right: int, count: int, share: float, unit: str, fault: str = "That is no better than chance") -> list[str]:
    """A warning where `right` of `count` may be chance, each with probability `share`.

    >>> for right, count in ((3, 6), (5, 6), (6, 6), (3, 3), (110, 200)):
    ...     print(right, "of", count, [line.partition(":")[0] for line in judge(right, count, 0.5, "texts")])
    3 of 6 ['That is no better than chance, so nothing was learned that holds for new texts']
    5 of 6 ['That may still be chance, 6 of 6 right would not be']
    6 of 6 []
    3 of 3 ['3 held-out texts are too few, or too alike, to tell that from chance']
    110 of 200 ['That may still be chance, 116 of 200 right would not be']
    """
    enough = next((k for k in range(count + 1) if find_chance(k, count, share) <= LEVEL), None)
    if enough is None:
        few = f"{count} held-out {unit} are too few, or too alike, to tell that from chance"
        return [f"{few}: give more examples, or hold out more (--held-out 0.2)."]
    if right <= share * count:
        return [f"{fault}, so nothing was learned that holds for new {unit}: {ADVICE}."]
    return [] if right >= enough else [f"That may still be chance, {enough} of {count} right would not be: {ADVICE}."]


def judge_labels(right: int, count: int, usual: int, label: str, unit: str, num_labels: int = 2) -> list[str]:
    """For predicted labels: how many are right, beside the majority-class baseline `label`, and a warning if no better.

    >>> for line in judge_labels(3, 12, 6, "spam", "texts"):
    ...     print(line.partition(", so")[0])
    Of 12 held-out texts 3 are right (25 %); always saying spam is right for 6 (50 %).
    That is no better than chance
    """
    shown = f"{right:,} {'is' if right == 1 else 'are'} right ({100 * right / count:.0f} %)"
    said = f"always saying {label} is right for {usual:,} ({100 * usual / count:.0f} %)"
    # what is most frequent in training may not be here
    share = max(usual / count, 1 / num_labels)
    return [f"Of {count:,} held-out {unit} {shown}; {said}.", *judge(right, count, share, unit)]


def judge_answers(said: Sequence[Sequence[object]], right: Sequence[Sequence[object]], unit: str) -> list[str]:
    """For generated answers: how many match exactly, and a warning if each might as well answer another example.

    >>> judge_answers(["ab", "cd", "ef"], ["ab", "cd", "eg"], "sentences")
    ['Of 3 held-out sentences 2 come out exactly right.']
    """
    exact = sum(list(one) == list(other) for one, other in zip(said, right, strict=True))
    line = f"Of {len(said):,} held-out {unit} {exact:,} {'comes' if exact == 1 else 'come'} out exactly right."
    # an answer is nearest to its own reference of all, by chance once in as many
    bags = [Counter(one) for one in right]
    hits = 0
    for number, one in enumerate(said):
        near = [_overlap(Counter(one), bag) for bag in bags]
        others = [x for x, bag in zip(near, bags, strict=True) if bag != bags[number]]
        hits += near[number] > max(others, default=0.0)
    different = len({frozenset(bag.items()) for bag in bags})
    fault = "The answers are as near to those of others"
    return [line, *(judge(hits, len(said), 1 / different, unit, fault) if exact * 2 < len(said) else [])]


def _overlap(one: Counter[object], other: Counter[object]) -> float:
    """F1 of the tokens that two have in common."""
    return 2 * (one & other).total() / max(one.total() + other.total(), 1)
