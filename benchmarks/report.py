"""The table, for the terminal and as a page, with the machine it was measured on."""

from __future__ import annotations

import os
import pathlib
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from benchmarks.measure import Row
from regard.core.files import write_whole

HEAD = ("contender", "median", "spread", "speed", "extra memory")


@dataclass(frozen=True)
class Block:
    """One case as measured: the peer's row comes first."""

    name: str
    title: str
    rows: Sequence[Row]


def show_time(seconds: float) -> str:
    """
    >>> show_time(0.0312), show_time(1.5e-5), show_time(2.25)
    ('31.2 ms', '15.0 µs', '2.25 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.1f} µs"


def show_bytes(count: int | None) -> str:
    """
    >>> show_bytes(3 * 2**20), show_bytes(None)
    ('3.0 MiB', '?')
    """
    if count is None:
        return "?"
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def list_cells(block: Block) -> Iterable[tuple[str, ...]]:
    """The cells of each row; speed is the first contender's time over this one's."""
    first = block.rows[0]
    for row in block.rows:
        if row.missing:
            yield row.contender, f"n/a: {row.missing}", "", "", ""
            continue
        spread = f"± {row.spread:.0%}" if len(row.seconds) > 1 else "?"
        speed = "" if first.missing else f"{first.median / row.median:.2f} ×"
        yield row.contender, show_time(row.median), spread, speed, show_bytes(row.extra)


def show_block(block: Block) -> str:
    """One case for the terminal."""
    lines = [f"{block.name}: {block.title}"]
    for name, *cells in list_cells(block):
        if cells[0].startswith("n/a"):
            lines.append(f"  {name:<24} {cells[0]}")
        else:
            lines.append(f"  {name:<24} " + " ".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def show_head() -> str:
    """What the columns of `show_block` are."""
    return f"  {HEAD[0]:<24} " + " ".join(f"{cell:>12}" for cell in HEAD[1:])


def describe_machine(threads: int) -> str:
    """Processor, memory and versions: what a number means nothing without."""
    model = platform.processor() or platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    cores = os.cpu_count() or 1
    return (
        f"{model}, {cores} cores, {threads} threads; torch {torch.__version__}, Python {platform.python_version()},"
        f" {platform.system()}"
    )


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in rows]


def write_page(blocks: Sequence[Block], machine: str, command: str, date: str, repeat: int, path: pathlib.Path) -> None:
    """The table as a section of a Markdown page."""
    lines = [
        f"{machine}. {date}.", "",
        f"    {command}", "",
        "Everything is float32 on the CPU. Contenders of a case take turns in one process; the median"
        f" of {repeat} turns counts, with half the distance between the quartiles. Speed is the first contender's time"
        " over this one's. Extra memory is the most that is resident during one call beyond what was before it, the"
        " result included, each measured in a fresh process (`benchmarks/peak.py`). All contenders of a case were"
        " checked to give the same result, except where one says that it has no mask.",
    ]  # fmt: skip
    for block in blocks:
        lines += ["", f"### {block.name}", "", f"{block.title}.", "", *table_lines(HEAD, list_cells(block))]
    write_section(path, "On the CPU", lines)


def write_section(path: pathlib.Path, heading: str, lines: Sequence[str]) -> None:
    """Put `lines` under `## heading` of a page, new or in place of what stood there; the rest of it stays as it is."""
    page = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    before, _, after = f"{page.rstrip()}\n".partition(f"\n## {heading}\n")
    _, following, rest = after.partition("\n## ")
    text = f"{before.rstrip()}\n\n## {heading}\n\n" + "\n".join(lines).strip() + "\n"
    if following:
        text += f"\n## {rest}"
    write_whole(path, text)


def tell(place: str, text: str) -> None:
    """What is going on: one line that is written over on a terminal, nothing elsewhere."""
    if sys.stderr.isatty():
        # \033[K clears what a longer line left behind
        print(f"\r{place} {text}\033[K", end="", file=sys.stderr, flush=True)
