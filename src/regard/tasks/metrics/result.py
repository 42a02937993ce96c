"""The result of evaluating a run, the same for every task."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

# told how many are done, and of how many
Report = Callable[[int, int], None]
# a progress bar with a title and a total
Bar = Callable[[str, int], AbstractContextManager[Report | None]]


@dataclass(frozen=True)
class Result:
    """Metrics, as JSON can hold them and as lines to print, and the run's predictions, one per line.

    `count` is how many examples were asked, `seconds` how long that took. `notes` are to be known about the scores.
    """

    entries: dict[str, Any]
    rows: list[str]
    answers: list[str]
    seconds: float
    count: int
    notes: list[str] = field(default_factory=list)


def hide(title: str, total: int) -> AbstractContextManager[None]:
    """No progress bar.

    >>> with hide("tagging", 3) as report:
    ...     report is None
    True
    """
    return nullcontext()


def time_answers(bar: Bar, title: str, count: int, ask: Callable[..., Any]) -> tuple[Any, float]:
    """Predictions made under a progress bar, and the seconds they took.

    >>> time_answers(hide, "adding", 2, lambda on_progress: 1 + 1)[0]
    2
    """
    start = time.perf_counter()
    with bar(title, count) as report:
        found = ask(on_progress=report)
    return found, time.perf_counter() - start
