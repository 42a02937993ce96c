"""The worst errors of a fuzz run, printed at its end: a bar that is only passed or failed hides how close it was."""

from __future__ import annotations

import pytest

PROPERTY = "worst"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The largest of each kind over all reports: under xdist properties travel from the workers with them."""
    worst: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "call" else ():
                if name == PROPERTY:
                    worst |= {kind: max(ratio, worst.get(kind, 0.0)) for kind, ratio in value.items()}
    if not worst:
        return
    terminalreporter.section("fuzz: largest error against float64, as a multiple of eager's own")
    for kind, ratio in sorted(worst.items()):
        terminalreporter.line(f"{ratio:6.2f}  {kind}")
