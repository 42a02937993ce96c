"""What a run tried, printed at its end: tests record how many combinations they took, and why they left others out."""

from __future__ import annotations

from collections import Counter

import pytest

TRIED, LEFT_OUT = "combinations ", "left out: "
# only the most frequent reasons are listed
LINES = 4


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum the properties of all reports: under xdist they travel from the workers with them."""
    tried: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "call":
                continue
            for name, value in report.user_properties:
                for prefix, counts in ((TRIED, tried), (LEFT_OUT, reasons)):
                    if name.startswith(prefix):
                        counts[name.removeprefix(prefix)] += value
    if not tried:
        return
    terminalreporter.section("conformance")
    for name, count in sorted(tried.items()):
        terminalreporter.line(f"{count:,} combinations {name}")
    if reasons:
        terminalreporter.line(f"{sum(reasons.values()):,} left out, for {len(reasons)} reasons; the most frequent:")
    for name, count in reasons.most_common(LINES):
        terminalreporter.line(f"  {count:,} × {name}")
