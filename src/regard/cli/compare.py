"""`regard compare`: convolution, recurrence and self-attention side by side, measured on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options.files import Force, check_place
from regard.cli.options.spread import Some
from regard.compare.registry import list_parts

EXAMPLES = """\
  regard compare --quick
  regard compare --out full.html
  regard compare --lengths 128,512,2048,8192 --width 256 --parts cost --out long.html
  regard compare --equal-parameters --device cuda --out gpu.html
  regard compare --from gpu.json --out again.html"""


def compare(
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The report, one .html; all numbers go to a .json of the same name.")
    ] = Path("report.html"),
    force: Force = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less of everything, for a first look.")] = False,
    lengths: Annotated[
        str | None,
        Some(
            "N,N,…", "Sequence lengths for time and memory, three or more.  [default: 32 to 4096; with --quick to 512]"
        ),
    ] = None,
    width: Annotated[int, typer.Option(metavar="D", min=1, help="Width d of the layers, for time and memory.")] = 64,
    kernel: Annotated[int, typer.Option(metavar="K", min=3, help="Kernel size k of the convolution, odd.")] = 3,
    heads: Annotated[int, typer.Option(metavar="N", min=1, help="Attention heads; must divide every width.")] = 4,
    window: Annotated[int, typer.Option(metavar="N", min=2, help="Window of local attention, in tokens.")] = 32,
    widths: Annotated[
        str, typer.Option(metavar="D,D,…", help="Widths for counting operations, sequential steps and path lengths.")
    ] = "32,64,128",
    kernels: Annotated[str, typer.Option(metavar="K,K,…", help="Kernel sizes for the same, odd.")] = "3,5,7",
    batches: Annotated[str, typer.Option(metavar="N,N,…", help="Batch sizes for time and memory.")] = "1,16",
    equal_parameters: Annotated[
        bool,
        typer.Option("--equal-parameters", help="Compare at equal parameter counts, not at equal widths."),
    ] = False,
    parts: Annotated[
        str | None,
        Some("NAMES", f"Parts to measure: {', '.join(list_parts())}.  [default: all]"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed of data and weights.")] = 0,
    device: Annotated[str, typer.Option(metavar="NAME", help="Device: cpu, cuda or cuda:N.")] = "cpu",
    numbers: Annotated[
        Path | None,
        Some("FILE", "Report the numbers of this .json again, measuring nothing.  [default: measure]", "--from"),
    ] = None,
) -> None:
    """Measure convolution, recurrence and self-attention side by side.

    The textbooks' table of layer types: operations, sequential steps and maximum path length. And beyond it: time and
    memory against sequence length, where one layer becomes cheaper than another, what each can recall from afar and
    tell of order, and how much data it needs. If it is stopped, the same command resumes after the parts that are done.
    """
    data, keep = out.with_suffix(".json"), out.with_name(f"{out.name}.part.json")
    for place in (out, data, keep):
        # what was begun is gone on with, and what is read is written as it was
        is_read = numbers is not None and place.absolute() == numbers.absolute()
        check_place("--out", place, force or place == keep or is_read)
    if numbers is not None and (quick or equal_parameters or lengths is not None or parts is not None):
        raise typer.BadParameter("--from measures nothing: it has no use for --quick, --lengths, --parts and the like")
    if out.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"--out must end in .html, got {out}")
    sizes = {"lengths": lengths, "widths": widths, "kernels": kernels, "batches": batches}
    read: dict[str, Any] = {name: _read_numbers(name, text) for name, text in sizes.items() if text is not None}
    if parts is not None:
        read["parts"] = tuple(part.strip() for part in parts.split(","))

    from regard.compare import Dimensions, Settings
    from regard.core import RegardError

    settings = Settings()
    if numbers is None:
        settings = replace(
            Settings(Dimensions(width=width, kernel=kernel, heads=heads, window=window), **read),
            has_equal_parameters=equal_parameters,
            device=device,
            seed=seed,
        )
    # torch is loaded once there is nothing to complain of
    from regard.compare import Comparison, find_kept, measure

    if numbers is not None:
        found = Comparison.load(numbers)
    else:
        if quick:
            settings = settings.quicken()
        if keep.exists():
            kept = find_kept(keep, settings)
            told = f"has {', '.join(kept.parts) or 'nothing'} already" if kept else "is of something else: begun anew"
            _tell(f"{keep} {told}.")
        if data.exists():
            # only what regard wrote is replaced
            Comparison.load(data)
            _tell(f"{out} is there already, and is replaced at the end.")
        start = time.monotonic()
        try:
            with _show(settings.parts) as say:
                found = measure(settings, keep=keep, on_progress=say)
        except KeyboardInterrupt:
            if keep.exists():
                _tell(f"What was measured is kept in {keep}: the same command goes on from there.")
            raise
        print(f"Measured in {time.monotonic() - start:.0f} s.\n")
    try:
        found.save(out)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if numbers is None or isinstance(error, RegardError):
            raise
        raise RegardError(f"{numbers} is damaged, it cannot be drawn: run regard compare again.") from None
    if numbers is None:
        keep.unlink(missing_ok=True)
    found.print()
    print(f"\nThe report:     {out} (open it in a browser)")
    print(f"All numbers:    {data}")


def _tell(line: str) -> None:
    """A line on stderr; that nobody reads it is no reason to lose what is measured."""
    with suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)


def _read_numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--{name} must be whole numbers with commas between, got {text!r}") from None


@contextmanager
def _show(parts: tuple[str, ...]) -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr; where that is no terminal, a line when a part begins."""
    if not sys.stderr.isatty():
        last = ""

        def say(part: str, share: float) -> None:
            nonlocal last
            if part and part != last:
                _tell(f"measuring {part} ({parts.index(part) + 1} of {len(parts)})")
            last = part

        yield say
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn(),
               rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn())  # fmt: skip
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=1.0)
        yield lambda part, share: bar.update(task, completed=share, description=f"measuring {part}".strip())
