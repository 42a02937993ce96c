"""What a fuzz run did, printed at its end: a bar that is only passed or failed hides how close it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fuzz import settings

PROPERTY = "fuzz"


@dataclass
class Tally:
    """Largest errors as multiples of eager's own, each with the number of its call, and how many calls there were."""

    worst: dict[str, tuple[float, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    # the longest call of each kind, which is the one that compiled
    longest: dict[str, float] = field(default_factory=dict)

    def note(self, what: str, ratio: float, number: int) -> None:
        self.worst[what] = max(self.worst.get(what, (0.0, -1)), (ratio, number))

    def count(self, drawn: Any, verdicts: Sequence[tuple[str, Any]], seconds: float) -> None:
        self.counts["calls"] += 1
        taken = {backend for backend, _ in verdicts}
        for backend in settings.BACKENDS:
            # one call in four is enough for `auto`: the others were not asked
            if backend in taken or backend != "auto":
                self.counts[f"{backend} {'judged' if backend in taken else 'refused'}"] += 1
        self.seconds += seconds
        self.longest[str(drawn.kind)] = max(seconds, self.longest.get(str(drawn.kind), 0.0))

    def add(self, other: Tally) -> None:
        for what, (ratio, number) in other.worst.items():
            self.note(what, ratio, number)
        self.counts += other.counts
        self.seconds += other.seconds
        self.longest |= {kind: max(time, self.longest.get(kind, 0.0)) for kind, time in other.longest.items()}

    def pack(self) -> tuple[Any, ...]:
        """As plain data, which travels between processes."""
        return {at: list(x) for at, x in self.worst.items()}, dict(self.counts), self.seconds, self.longest

    @classmethod
    def unpack(cls, data: Sequence[Any]) -> Tally:
        worst, counts, seconds, longest = data
        return cls({at: (x[0], x[1]) for at, x in worst.items()}, Counter(counts), seconds, dict(longest))

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {what}" for what, count in self.counts.items())
        worst = ", ".join(f"{what} {ratio:.2f} (#{number})" for what, (ratio, number) in sorted(self.worst.items()))
        kinds = f", {sum(self.longest.values()):.0f} s of it the longest of each kind" if settings.KINDS else ""
        return f"{settings.show()}: {counts} in {self.seconds:.0f} s{kinds}; {worst}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The sum of all reports: under xdist properties travel from the workers with them."""
    tally = Tally()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "call" else ():
                if name == PROPERTY:
                    tally.add(Tally.unpack(value))
    if tally.counts:
        terminalreporter.section("fuzz: largest errors against float64, as multiples of eager's own")
        terminalreporter.line(str(tally))
