"""What our kernel is to reach in a case, and whether it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.measure import Row
from benchmarks.report import show_bytes, show_time


@dataclass
class Reading(Row):
    """One contender as measured: also its error by result, and whether its bits were the same each time."""

    # "peer", "ours" (the backend under test) or "auto" (what the planner takes)
    side: str = "peer"
    errors: dict[str, float] = field(default_factory=dict)
    bits: bool | None = None


@dataclass(frozen=True)
class Goal:
    """Limits on time and memory, and how many times as fast as the best peer (those whose name begins with `over`)."""

    ms: float | None = None
    mib: float | None = None
    times: float | None = None
    over: str = ""
    bits: bool = False

    def __str__(self) -> str:
        parts = [f"at most {self.ms:g} ms"] if self.ms is not None else []
        parts += [f"at most {self.mib:g} MiB"] if self.mib is not None else []
        if self.times is not None:
            much = "as fast as" if self.times == 1 else f"{self.times:g} times as fast as"
            parts.append(f"{much} {self.over or 'every peer'}")
        parts += ["the same bits each time"] if self.bits else []
        return ", ".join(parts)

    def judge(self, rows: Sequence[Reading]) -> str:
        """One line: reached, or what is missing; nothing where there is nothing to reach."""
        if not str(self):
            return ""
        ours = next(row for row in rows if row.side == "ours")
        if ours.missing:
            return "not reached: ours has no time"
        misses = list(self._list_misses(ours, [row for row in rows if row.side == "peer" and not row.missing]))
        return f"not reached: {', '.join(misses)}" if misses else "reached"

    def _list_misses(self, ours: Reading, peers: Sequence[Reading]) -> Iterator[str]:
        if self.ms is not None and ours.median > self.ms / 1000:
            yield show_time(ours.median)
        if self.mib is not None and (ours.extra is None or ours.extra > self.mib * 2**20):
            yield f"{show_bytes(ours.extra)} of memory"
        if self.times is not None:
            rivals = [row for row in peers if row.contender.startswith(self.over)]
            if not rivals:
                yield "no peer to compare with"
            else:
                best = min(rivals, key=lambda row: row.median)
                speed = best.median / ours.median
                if speed < self.times:
                    yield f"{speed:.2f} × {best.contender}"
        if self.bits and not ours.bits:
            yield "bits differ from run to run"


class Part(NamedTuple):
    """What a case measured; `tokens` are those of one call, where a speed is told in them."""

    name: str
    title: str
    goal: Goal
    rows: Sequence[Reading]
    tokens: int = 0
