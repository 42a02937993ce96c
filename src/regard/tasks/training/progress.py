"""Progress of training: a progress bar in a terminal, and a line per validation anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Progress:
    """A progress bar of training steps, with loss, metric, throughput and remaining time.

    >>> progress = Progress(is_shown=False)
    >>> with progress.show(total=100, done=40):
    ...     progress.advance(41, 2.0, 1000.0)

    All goes to the error stream, so that a command's output stays its own. Without a terminal there is no bar.
    """

    def __init__(
        self, *, is_shown: bool = True, unit: str = "examples", baselines: Mapping[str, float] | None = None
    ) -> None:
        self._unit, self._baselines = unit, baselines or {}
        self._bar: Any = None
        self._console: Any = None
        self._metric, self._moved = "", 0.0
        if is_shown:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, markup=False)

    @contextmanager
    def show(self, total: int, done: int) -> Iterator[None]:
        """Show the progress bar, until the block is left."""
        if self._console is None or not self._console.is_terminal:
            yield
            return
        from rich import progress as rich

        left = (rich.TextColumn("left"), rich.TimeRemainingColumn())
        facts = (rich.MofNCompleteColumn(), rich.TextColumn("{task.fields[facts]}"), rich.TimeElapsedColumn())
        columns = (rich.TextColumn("training"), rich.BarColumn(), *facts, *left)
        with rich.Progress(*columns, console=self._console, transient=True) as self._bar:
            self._bar.add_task("", total=total, completed=done, facts="")
            yield
        self._bar = None

    def is_due(self) -> bool:
        """Whether to move the bar: a few times a second at most, since each look at a loss makes a GPU wait."""
        now = time.monotonic()
        if self._bar is None or now - self._moved < 0.25:
            return False
        self._moved = now
        return True

    def advance(self, step: int, loss: float, rate: float) -> None:
        """Move the bar: so many steps are done."""
        if self._bar is not None:
            facts = f"loss {loss:.3f}  {self._metric}{rate:,.0f} {self._unit}/s"
            self._bar.update(self._bar.task_ids[0], completed=step, facts=facts)

    def report(self, row: Mapping[str, Any], is_best: bool) -> None:
        """Print the metrics of a validation."""
        shown = [(name.replace("_", " "), row[name]) for name in row if name == "loss" or name.startswith("valid_")]
        self._metric = f"{shown[-1][0]} {shown[-1][1]:.4g}  "
        beside = {f"valid {name}": f" (baseline {value:.4g})" for name, value in self._baselines.items()}
        facts = "  ".join(f"{name} {value:.4g}{beside.get(name, '')}" for name, value in shown)
        star = "  best" if is_best else ""
        self.say(f"step {row['step']}  epoch {row['epoch']:.1f}  {facts}  {row['seconds']:.0f} s{star}")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._console is not None:
            self._console.print(line, soft_wrap=True)
