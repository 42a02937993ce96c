"""What was measured on the GPU: as lines on the terminal, as raw numbers, and as a section of the page."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import platform
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch

from benchmarks.gpu.goal import Reading
from benchmarks.report import show_bytes, show_time, table_lines, write_section
from regard.core.files import write_whole

# sections of the page, by what was measured
HEADINGS = {
    "kernels": "On a GPU", "table": "On a GPU: sizes people train with", "sweep": "On a GPU: other shapes",
    "small": "On a GPU: small calls", "cold": "On a GPU: first calls", "models": "On a GPU: whole models",
}  # fmt: skip
HEAD = ("contender", "median", "spread", "speed", "extra memory", "error", "same bits")
SUMMARY = ("case", "to reach", "ours", "memory", "auto", "best peer", "speed", "")
OTHERS = ("case", "to reach", "ours", "best peer", "speed", "", "others")
_ROWS = """\
Contenders take turns in one process. A time is the median of rows of calls as training makes them, so that the slower
of host and device counts; the host's time is that of the Python call alone. A peer counts only where its error against
float64 is at most twice that of eager code in the same dtype, three times for a gradient; speed is the best such
peer's time over ours. Where ours gave other bits in one of three runs, its verdict says so."""
ABOUTS = {
    "table": _ROWS,
    "sweep": f"{_ROWS} The shapes are drawn from a seed.",
    "small": f"{_ROWS} Here the peer is torch's causal call for all kinds, for scale.",
    "cold": """\
Each kind in a process of its own, with no compiled kernel kept from before. What torch needs to wake up is not
counted, nor are imports of torch; those of Triton are.""",
    "models": """\
A step: loss, gradients and fused AdamW. Both models begin with the same weights and were seen to give the same;
dropout is that of the presets, none on attention weights. Steps in turns, medians.""",
}
ABOUT = """\
Contenders of a case take turns in one process. A time is the median over all turns, by CUDA events around a call
with the L2 cache emptied before it, with half the distance between the quartiles; calls are queued, so the host's
work counts only where it takes longer than the device's. Speed is the first contender's time over this one's. Extra
memory is the most that was allocated during a call beyond what was before it: inputs do not count, results do. Error
is the largest of ‖found − truth‖ / ‖truth‖ over the output and, in training, all gradients; the truth is the
definition in plain torch, in float32 for bfloat16 inputs and in float64 for float32; in forward cases at rows from
four places. What was too far off was not timed, except a peer that is there for scale. Same bits: ten runs compared.
Numbers are normal, seeds fixed."""


@dataclass(frozen=True)
class Run:
    """What a number means nothing without."""

    device: str
    driver: str
    torch: str
    triton: str
    python: str
    date: str
    command: str

    def __str__(self) -> str:
        return (
            f"{self.device}, driver {self.driver}; torch {self.torch}, triton {self.triton}, Python {self.python}."
            f" {self.date}."
        )


@dataclass(frozen=True)
class Block:
    """One case as measured."""

    name: str
    title: str
    goal: str
    verdict: str
    rows: Sequence[Reading]
    run: Run
    section: str = "kernels"
    # of one call, where a speed is told in them
    tokens: int = 0


def describe_run(device: str, date: str, command: str) -> Run:
    name = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else "CPU"
    try:
        triton = metadata.version("triton")
    except metadata.PackageNotFoundError:
        triton = "none"
    return Run(name, _find_driver(), torch.__version__, triton, platform.python_version(), date, command)


def _find_driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found[0] if found else "unknown"


def list_cells(block: Block) -> Iterator[tuple[str, ...]]:
    """The cells of each row; what could not be measured has its reason instead."""
    first = next((row for row in block.rows if not row.missing), None)
    for row in block.rows:
        error = f"{max(row.errors.values()):.1e}" if row.errors else ""
        if row.missing or first is None:
            yield row.contender, f"n/a: {row.missing}", *[""] * (len(HEAD) - 2)
            continue
        spread = f"± {row.spread:.0%}" if len(row.seconds) > 1 else "one call"
        bits = {True: "yes", False: "no", None: ""}[row.bits]
        speed = f"{first.median / row.median:.2f} ×"
        yield row.contender, show_time(row.median), spread, speed, show_bytes(row.extra), error, bits


def show_block(block: Block) -> str:
    """One case for the terminal."""
    lines = [f"{block.name}: {block.title}"]
    for row, (name, *cells) in zip(block.rows, list_cells(block), strict=True):
        if row.missing:
            lines.append(f"  {name:<34} {cells[0]}")
            continue
        lines.append(f"  {name:<34} " + " ".join(f"{cell:>12}" for cell in cells).rstrip())
        if len(row.errors) > 1:
            lines.append(" " * 6 + "error " + ", ".join(f"{name} {error:.1e}" for name, error in row.errors.items()))
    if block.goal:
        lines.append(f"  to reach: {block.goal}: {block.verdict}")
    return "\n".join(lines)


def show_head() -> str:
    """What the columns of `show_block` are."""
    return f"  {HEAD[0]:<34} " + " ".join(f"{cell:>12}" for cell in HEAD[1:])


def summarize(blocks: Iterable[Block]) -> Iterator[tuple[str, ...]]:
    """A line for each case: our kernel beside the best of its peers."""
    for block in blocks:
        ours, auto = (next((row for row in block.rows if row.side == side), None) for side in ("ours", "auto"))
        peers = [row for row in block.rows if row.side == "peer" and not row.missing]
        best = min(peers, key=lambda row: row.median, default=None)
        times = [_show_speed(block, row) for row in (ours, auto)]
        if auto is not None and not auto.missing:
            # its name ends with the backend that was taken, in brackets
            times[1] += f" {auto.contender.split()[-1]}"
        has_both = best is not None and ours is not None and not ours.missing
        yield (
            block.name, block.goal, times[0], show_bytes(ours.extra if ours else None), times[1],
            f"{_show_speed(block, best)} ({best.contender})" if best else "",
            f"{best.median / ours.median:.2f} ×" if has_both else "",  # type: ignore[union-attr]
            block.verdict,
        )  # fmt: skip


def _show_speed(block: Block, row: Reading | None) -> str:
    if row is None or row.missing:
        return "n/a"
    rate = f", {block.tokens / row.median:,.0f} tokens/s" if block.tokens else ""
    return f"{show_time(row.median)}{rate}"


def list_others(blocks: Iterable[Block]) -> Iterator[tuple[str, ...]]:
    """A line for each part of a case, which all contenders share."""
    for block, (name, goal, own, _, _, best, speed, verdict) in zip(blocks, summarize(blocks), strict=True):
        ours = next(row for row in block.rows if row.side == "ours")
        rest = [
            f"{row.contender} {f'n/a: {row.missing}' if row.missing else _show_speed(block, row)}"
            for row in block.rows if row.missing or (row is not ours and not best.endswith(f"({row.contender})"))
        ]  # fmt: skip
        taken = f" {ours.contender.split()[-1]}" if ours.contender.endswith(")") else ""
        yield name, goal, f"{own}{taken}", best, speed, verdict, "; ".join(rest)


def show_worst(blocks: Sequence[Block]) -> str:
    """The case that is slowest beside its best peer; the host's own time is no speed."""
    pairs = zip((block.name for block in blocks), (row[4] for row in list_others(blocks)), strict=True)
    speeds = {name: speed for name, speed in pairs if speed and not name.endswith(":host")}
    if not speeds:
        return ""
    worst = min(speeds, key=lambda name: float(speeds[name].split()[0]))
    return f"The worst of {len(speeds)}: {speeds[worst]}, {worst}."


def group(blocks: Iterable[Block]) -> dict[str, list[Block]]:
    """Blocks by their sections."""
    found = {section: [block for block in blocks if block.section == section] for section in HEADINGS}
    return {section: some for section, some in found.items() if some}


def show_summary(blocks: Sequence[Block]) -> str:
    """The summary for the terminal, columns as wide as they must be, but the last."""
    lines = []
    for section, some in group(blocks).items():
        rows = [SUMMARY, *summarize(some)] if section == "kernels" else [OTHERS, *list_others(some)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [] if section == "kernels" else [show_worst(some), ""]
    return "\n".join(lines).rstrip()


def write_numbers(blocks: Sequence[Block], path: pathlib.Path) -> None:
    """All raw numbers, as JSON."""
    write_whole(path, json.dumps([dataclasses.asdict(block) for block in blocks], indent=1) + "\n")


def read_numbers(path: pathlib.Path) -> list[Block]:
    """What `write_numbers` wrote."""

    def build(entry: dict[str, Any]) -> Block:
        rows = [Reading(**row) for row in entry.pop("rows")]
        return Block(**{**entry, "rows": rows, "run": Run(**entry.pop("run"))})

    return [build(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def write_page(blocks: Sequence[Block], path: pathlib.Path) -> None:
    """The sections of the page that were measured; the rest of it stays as it is."""
    for section, some in group(blocks).items():
        lines: list[str] = []
        for run in dict.fromkeys(block.run for block in some):
            lines += [str(run), "", f"    {run.command}", ""]
        if section == "kernels":
            lines += [ABOUT, "", *table_lines(SUMMARY, summarize(some))]
            for block in some:
                lines += ["", f"### {block.name}", "", f"{block.title[0].upper()}{block.title[1:]}."]
                lines += [f"To reach: {block.goal}; {block.verdict}."] if block.goal else []
                lines += ["", *table_lines(HEAD, list_cells(block))]
        else:
            rows = ((block.title, *cells[1:]) for block, cells in zip(some, list_others(some), strict=True))
            lines += [ABOUTS[section], "", *table_lines(OTHERS, rows), "", show_worst(some)]
        write_section(path, HEADINGS[section], lines)
