"""What became of faults: as lines, as a page, and as JSON from which a count goes on."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.faults import DRAWN, Fault, SeedError


@dataclass(frozen=True)
class Verdict:
    """What became of one fault: the first test that failed, empty if none did; None if the time was up before."""

    fault: Fault
    test: str | None
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.test)

    @property
    def mark(self) -> str:
        return "caught" if self.caught else "SURVIVED" if self.test == "" else "NO END"


def show(verdict: Verdict) -> str:
    fault = verdict.fault
    return f"{verdict.mark:<9}{verdict.seconds:>5.0f} s  {fault.file:<28} {fault.what}" + (
        f"\n{'':>18}by {verdict.test}" if verdict.caught else ""
    )


@dataclass
class Count:
    """Verdicts of the faults that are asked for, and what makes them worth something."""

    faults: Sequence[Fault]
    command: str
    commit: str
    date: str
    machine: str
    # faults that nobody could see, and those that cannot be judged here, each with the reason
    equivalent: dict[str, str] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    # what was taken over from another commit
    earlier: str = ""

    @property
    def todo(self) -> list[Fault]:
        aside = {*self.equivalent, *self.unseen, *self.verdicts}
        return [fault for fault in self.faults if fault.what not in aside]

    @property
    def caught(self) -> int:
        return sum(verdict.caught for verdict in self.verdicts.values())

    @property
    def missed(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts.values() if not verdict.caught]

    def show_progress(self, jobs: int) -> str:
        """How many of how many, and how long the rest will take if it goes on as it did."""
        left, done = len(self.todo), len(self.verdicts)
        minutes = sum(verdict.seconds for verdict in self.verdicts.values()) / done * left / jobs / 60
        rest = f", about {minutes:.0f} min left" if left else ""
        return f"{done} of {done + left}: {self.caught} caught, {done - self.caught} not{rest}"

    def sum_up(self) -> str:
        """How many were caught, and all others by name."""
        done = len(self.verdicts)
        share = f" ({self.caught / done:.0%})" if done else ""
        lines = [f"{self.caught} of {done} faults caught{share}"]
        lines += [f"  {verdict.mark.lower()}: {verdict.fault.file}: {verdict.fault.what}" for verdict in self.missed]
        for name, some in (("equivalent, not counted", self.equivalent), ("not judged", self.unseen)):
            lines += [f"  {name}: {what}: {why}" for what, why in some.items()]
        return "\n".join(lines)

    def write(self, page: pathlib.Path) -> None:
        """The page, and beside it the JSON; neither is ever there by half."""
        # brings torch, which a list of faults does not need
        from regard.core.files import write_whole

        write_whole(page, write_page(self))
        rows = [{"what": what, "test": x.test, "seconds": round(x.seconds, 1)} for what, x in self.verdicts.items()]
        kept = {"commit": self.commit, "seconds": round(self.seconds, 1), "verdicts": rows}
        write_whole(page.with_suffix(".json"), json.dumps(kept, indent=1, ensure_ascii=False) + "\n")

    def go_on(self, file: pathlib.Path, changed_since: Callable[[str], set[str]] | None = None) -> None:
        """Take over the verdicts of a count that was broken off, at the same commit.

        Of another commit those who were caught are taken over where their file has not changed since, if asked for by
        `changed_since`; survivors are judged again.
        """
        try:
            kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            commit, rows = kept["commit"], kept["verdicts"]
            known = {row["what"]: (row["test"], float(row["seconds"])) for row in rows}
            self.seconds = float(kept["seconds"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise SeedError(f"{file} holds no verdicts to go on from ({type(problem).__name__}).") from None
        self.verdicts = {x.what: Verdict(x, *known[x.what]) for x in self.faults if x.what in known}
        if commit != self.commit:
            if changed_since is None:
                raise SeedError(
                    f"{file} is of commit {commit}, here is {self.commit}: count anew, without --resume, or take over"
                    " with --again what was caught."
                )
            changed = changed_since(commit)
            own = self.verdicts.items()
            self.verdicts = {what: x for what, x in own if x.caught and x.fault.path.as_posix() not in changed}
            self.earlier = f" {len(self.verdicts)} were caught at {commit}, in files that have not changed since."


def write_page(count: Count) -> str:
    """The count by room as Markdown: a table, what survived, what is equivalent, and how it was made."""
    from benchmarks.report import table_lines

    asked, drawn = len(count.verdicts) + len(count.todo), {fault.what for fault in DRAWN}
    lines = ["# Seeded faults", "", f"{count.caught} of {asked} caught ({count.caught / max(asked, 1):.1%})."]
    if left := len(count.todo):
        lines.append(f"{left} are not judged to the end yet.")
    rows = []
    rooms = list(dict.fromkeys(fault.room for fault in count.faults))
    for room, name in [*((room, room) for room in rooms), (None, "all")]:
        own = [x for x in count.faults if room in (None, x.room) and x.what not in count.equivalent | count.unseen]
        found = [count.verdicts[x.what] for x in own if x.what in count.verdicts]
        by_chance, caught = sum(x.what in drawn for x in own), sum(x.caught for x in found)
        rows.append([name, *map(str, (len(own) - by_chance, by_chance, caught, len(found) - caught))])
    lines += ["", *table_lines(("room", "by hand", "drawn", "caught", "survived"), rows)]
    # what was drawn is code
    named = {x.what: f"`{x.file}`: " + (f"`` {x.what} ``" if x.what in drawn else x.what) for x in count.faults}
    lines += _list("Survived", [named[x.fault.what] + _end(x) for x in count.missed])
    lines += _list("Not judged to the end", [named[x.what] for x in count.todo])
    for title, some in (("Equivalent, not counted", count.equivalent), ("Not judged here", count.unseen)):
        lines += _list(title, [f"{named[what]}: {why}" for what, why in some.items()])
    made = f"Commit {count.commit}, {count.date}, {count.seconds:,.0f} s. {count.machine}.{count.earlier}"
    return "\n".join([*lines, "", "## How it was made", "", f"    {count.command}", "", made, ""])


def _end(verdict: Verdict) -> str:
    return "" if verdict.test == "" else " (no end within the limit)"


def _list(title: str, entries: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *(f"- {entry}" for entry in entries)] if entries else []
