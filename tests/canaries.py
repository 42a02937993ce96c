"""Canaries: tests that torch is still wrong somewhere, so that the guard against it is still needed.

One that finds torch right does not fail: what is wrong depends on the processor. It is reported in the summary, and its
guard stays until it is quiet on every machine listed here.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

STILL, QUIET = "canary still wrong", "canary right here"
# the canaries that were quiet on each machine on which all were heard, and what that machine was
LISTED: dict[str, frozenset[str]] = {
    "AMD EPYC (Zen 4), torch 2.13": frozenset(),
    "Intel Xeon (Sapphire Rapids), torch 2.13": frozenset({"one key, bfloat16"}),
    "NVIDIA H200, torch 2.11": frozenset(),
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "canary(name, guard): says whether torch is still wrong; never fails")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    mark = item.get_closest_marker("canary")
    if mark is None or report.when != "call" or report.skipped:
        return report
    said = f"{mark.kwargs['name']} (guard: {mark.kwargs['guard']})"
    if call.excinfo is not None:
        # torch is right, or does something else altogether: either is worth a word, and no failure of ours
        said += f": {str(call.excinfo.value).splitlines()[0][:120]}"
        report.outcome, report.longrepr = "passed", None
    report.user_properties.append((QUIET if call.excinfo else STILL, said))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Under xdist, properties travel from the workers with the reports."""
    heard: dict[str, list[str]] = {STILL: [], QUIET: []}
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name in heard and report.when == "call":
                heard[name].append(value)
    if not any(heard.values()):
        return
    terminalreporter.section("canaries: faults of torch that we go around")
    terminalreporter.line(f"{len(heard[STILL])} still wrong here, {len(heard[QUIET])} right here")
    for value in heard[QUIET]:
        name = value.partition(" (guard: ")[0]
        wrong = [machine for machine, quiet in LISTED.items() if name not in quiet]
        stays = f"the guard stays, it was wrong on {'; '.join(wrong)}" if wrong else "quiet on all listed: it can go"
        terminalreporter.line(f"  {value}: {stays}")
