"""What a run has learned, in a line, and a plain word where that is nothing: against chance, on held-out examples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

# so many held-out examples are asked at the end of a run: enough to tell something from nothing
JUDGED = 200
# how seldom chance may do as well
LEVEL = 0.01
ADVICE = "check that what is to be learned follows from the text, then try more examples, --epochs or another --lr"


def is_chance(right: int, count: int, share: float) -> bool:
    """Whether so many of `count` are right by chance once in a hundred times or more, each with this probability.

    >>> is_chance(12, 12, 0.5), is_chance(8, 12, 0.5), is_chance(600, 1000, 0.5), is_chance(5, 5, 1.0)
    (False, True, False, True)
    """
    if right <= share * count or share >= 1:
        return True
    if share <= 0:
        return False
    whole = math.lgamma(count + 1)
    logs = (
        whole - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * math.log(share) + (count - k) * math.log1p(-share)
        for k in range(right, count + 1)
    )
    return sum(map(math.exp, logs)) > LEVEL


def judge_labels(right: int, count: int, usual: int, label: str, unit: str) -> list[str]:
    """Of a run that gives labels: how many are right, beside how many the most frequent `label` is right for.

    >>> for line in judge_labels(3, 12, 6, "spam", "texts"):
    ...     print(line.partition(", so")[0])
    Of 12 held-out texts 3 are right (25 %); always saying spam is right for 6 (50 %).
    That is no better than chance
    """
    shown = f"{right:,} {'is' if right == 1 else 'are'} right ({100 * right / count:.0f} %)"
    said = f"always saying {label} is right for {usual:,} ({100 * usual / count:.0f} %)"
    lines = [f"Of {count:,} held-out {unit} {shown}; {said}."]
    return lines + ([warn(f"new {unit}")] if is_chance(right, count, usual / count) else [])


def judge_answers(said: Sequence[Sequence[object]], right: Sequence[Sequence[object]], unit: str) -> list[str]:
    """Of a run that writes: how many answers are exact; it has learned nothing if each might as well answer another.

    >>> judge_answers(["ab", "cd", "ef"], ["ab", "cd", "eg"], "sentences")
    ['Of 3 held-out sentences 2 come out exactly right.']
    """
    exact = sum(list(one) == list(other) for one, other in zip(said, right, strict=True))
    lines = [f"Of {len(said):,} held-out {unit} {exact:,} {'comes' if exact == 1 else 'come'} out exactly right."]
    # an answer is nearest to its own reference of all, by chance once in as many
    bags = [Counter(one) for one in right]
    hits = 0
    for number, one in enumerate(said):
        near = [_overlap(Counter(one), bag) for bag in bags]
        others = [x for x, bag in zip(near, bags, strict=True) if bag != bags[number]]
        hits += near[number] > max(others, default=0.0)
    different = len({frozenset(bag.items()) for bag in bags})
    if exact * 2 < len(said) and is_chance(hits, len(said), 1 / different):
        lines.append(warn(f"new {unit}"))
    return lines


def warn(what: str) -> str:
    """That nothing was learned, and what may help."""
    return f"That is no better than chance, so nothing was learned that holds for {what}: {ADVICE}."


def _overlap(one: Counter[object], other: Counter[object]) -> float:
    """F1 of the tokens that two have in common."""
    return 2 * (one & other).total() / max(one.total() + other.total(), 1)
