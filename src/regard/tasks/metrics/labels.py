"""Metrics of classification and tagging: accuracy, precision, recall, F1 and confusions, by torchmetrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from regard.core import RegardError
from regard.extras import install
from regard.tasks.metrics.result import Result
from regard.views.labels import show_line

# labels that are named where some are mistaken, or not known
FEW = 5


@dataclass(frozen=True)
class LabelScore:
    """Precision, recall and F1 of one label, from 0 to 100; `count` (support) is how often it is right."""

    precision: float
    recall: float
    f1: float
    count: int


@dataclass(frozen=True)
class LabelScores:
    """Accuracy and macro F1, the mean over labels, from 0 to 100, of `count` labels.

    `baseline` is the accuracy of saying nothing but `usual`, the most frequent of the right labels.
    `confusions` are (right, said, how often), the most frequent first. `unknown` counts the labels that the model does
    not have, and which it therefore never says.
    """

    accuracy: float
    f1: float
    count: int
    baseline: float
    usual: str
    labels: dict[str, LabelScore] = field(repr=False)
    confusions: list[tuple[str, str, int]] = field(repr=False)
    unknown: dict[str, int] = field(repr=False)


def score_labels(said: Sequence[str], right: Sequence[str], known: Sequence[str]) -> LabelScores:
    """Accuracy, F1 and confusions of predicted labels; `known` are all that the model can predict.

    >>> found = score_labels(["a", "a", "b", "a"], ["a", "b", "b", "x"], ["a", "b"])
    >>> found.accuracy, found.baseline, found.labels["a"].recall, found.confusions, found.unknown
    (50.0, 50.0, 100.0, [('b', 'a', 1), ('x', 'a', 1)], {'x': 1})

    A label that is not known is wrong whatever is said. One that is neither said nor right does not count in `f1`.
    """
    if len(said) != len(right):
        raise RegardError(f"labels must be as many as the right ones, got {len(said)} and {len(right)}: one for each.")
    if not said:
        raise RegardError("labels must be one at least to be scored, got none.")
    try:
        from torchmetrics.functional import classification
    except ImportError:
        raise RegardError(f"scores of labels need the package torchmetrics: {install('train')}.") from None
    has = set(known)
    unknown = Counter(label for label in right if label not in has)
    names = [*known, *sorted(unknown)]
    numbers = {name: number for number, name in enumerate(names)}
    one, two = (torch.tensor([numbers[label] for label in labels]) for labels in (said, right))
    options: dict[str, Any] = {"num_classes": max(len(names), 2), "validate_args": False}
    f1 = classification.multiclass_f1_score(one, two, average="macro", **options)
    accuracy = classification.multiclass_accuracy(one, two, average="micro", **options)
    parts = [
        classification.multiclass_precision(one, two, average="none", **options),
        classification.multiclass_recall(one, two, average="none", **options),
        classification.multiclass_f1_score(one, two, average="none", **options),
    ]
    counts, met = Counter(right), {*said, *right}
    rows = {}
    for number, name in enumerate(names):
        if name in met:
            precision, recall, own = (100 * float(part[number]) for part in parts)
            rows[name] = LabelScore(precision, recall, own, counts[name])
    wrong = Counter((b, a) for a, b in zip(said, right, strict=True) if a != b)
    confusions = [(*pair, times) for pair, times in sorted(wrong.items(), key=lambda item: (-item[1], item[0]))]
    usual, times = min(counts.items(), key=lambda item: (-item[1], item[0]))
    shares = 100 * float(accuracy), 100 * float(f1), len(said), 100 * times / len(right)
    return LabelScores(*shares, usual, rows, confusions, dict(sorted(unknown.items())))


def report_labels(
    said: Sequence[str], right: Sequence[str], known: Sequence[str], seconds: float, *, answers: Sequence[str] = ()
) -> Result:
    """The metrics of labels as a result of `evaluate`; `answers` are lines to write where they are not the labels.

    >>> report_labels(["a", "b"], ["a", "a"], ["a", "b"], 0.1).rows[0]
    'accuracy   50.00   1 of 2; always saying a: 100.00'
    """
    scores = score_labels(said, right, known)
    rows, notes = list_scores(scores)
    shown = list(answers) or [show_line(label) for label in said]
    return Result(asdict(scores), rows, shown, seconds, len(shown), notes)


def list_scores(scores: LabelScores) -> tuple[list[str], list[str]]:
    """The metrics of labels as lines to print, and notes on them."""
    right = round(scores.accuracy * scores.count / 100)
    rows = [
        f"accuracy  {scores.accuracy:6.2f}   {right} of {scores.count};"
        f" always saying {show_line(scores.usual)}: {scores.baseline:.2f}",
        f"mean F1   {scores.f1:6.2f}   of {len(scores.labels)} labels",
    ]
    width = max(5, *(len(show_line(name)) for name in scores.labels))
    rows += ["", f"{'label':{width}}  precision  recall      F1   count"]
    for name, x in sorted(scores.labels.items(), key=lambda item: -item[1].count):
        rows.append(f"{show_line(name):{width}}  {x.precision:9.2f}  {x.recall:6.2f}  {x.f1:6.2f}  {x.count:6}")
    worst = ", ".join(
        f"{show_line(said)} for {show_line(name)} ({times})" for name, said, times in scores.confusions[:FEW]
    )
    if worst:
        rows += ["", f"Most often wrong: {worst}."]
    notes = []
    if sum(scores.unknown.values()) == scores.count:
        notes.append("None of these labels is one of this run's: do --columns name the right one?")
    if scores.unknown:
        names = [f"{show_line(name)} ({times})" for name, times in scores.unknown.items()]
        more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
        notes.append(f"Labels that this run does not know count as wrong: {', '.join(names[:FEW])}{more}.")
    return rows, notes
