"""What commands for inference share: reading texts, writing answers, notes on unknown and long input."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.cli.options.files import check_place, name_program, read_lines, read_stream, show_progress, write_lines
from regard.cli.options.spread import Some
from regard.models.layout import PREFIX

if TYPE_CHECKING:
    from regard.tasks.registry import Entry

Answer = TypeVar("Answer")

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a trained run, the --out of regard train.", show_default=False)
]
Text = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Sentences.  [default: stdin, one per line]")]
Input = Annotated[
    Path | None, Some("FILE", "Read sentences from a file, one per line, plain or .gz.  [default: stdin]")
]
Output = Annotated[
    Path | None, Some("FILE", "Write the answers to a file; one that exists needs --force.  [default: stdout]")
]
BatchSize = Annotated[int, typer.Option(metavar="N", min=1, help="Sentences per batch; more take more memory.")]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="Device: auto (a GPU where there is one), cpu, cuda or cuda:N.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]

TABLES = (".csv", ".tsv", ".jsonl", ".conllu")


def check_asked(
    given: list[str] | None, input: Path | None, output: Path | None, force: bool, units: str = "sentences"
) -> None:
    """Check inputs and output of a command, before there is work to lose."""
    if given and input is not None:
        raise typer.BadParameter(f"give {units} or --input, not both")
    check_place("--output", output, force)


def read_asked(given: list[str] | None, input: Path | None, *, is_typed: bool = False) -> list[str] | None:
    """The input, one item per line; None where it is typed in a terminal, if `is_typed` may be."""
    if not given and input is None and is_typed and sys.stdin.isatty():
        return None
    if input is not None and input.name.lower().removesuffix(".gz").endswith(TABLES):
        print(f"{input} is read as plain text: each line is one input.", file=sys.stderr)
    return list(given or (read_stream() if input is None else read_lines(input)))


def check_kept(run: str | Path) -> None:
    """Check that a run has saved a model."""
    from regard.core import RegardError
    from regard.models.layout import CONFIG, WEIGHTS
    from regard.tasks.training.folder import SETTINGS

    place = Path(run)
    if (place / SETTINGS).exists() and not any((place / name).exists() for name in (CONFIG, WEIGHTS)):
        raise RegardError(
            f"{run} has no model yet, its first validation saves one: resume training, or validate sooner"
            " (--validate-every)."
        )


def check_run(run: str | Path, device: str, task: str | None = None) -> Entry | None:
    """The task of a run, None of hf:FOLDER; checks its model, that the command is its task's, and the device.

    All of it before torch is loaded, which takes longer than all else.
    """
    from regard.core import RegardError
    from regard.models.files import check_folder, open_file
    from regard.models.layout import RESTORE, WEIGHTS
    from regard.tasks.registry import find_entry

    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise RegardError(f"device must be auto, cpu or cuda, got {device!r}.")
    check_folder(Path(str(run).removeprefix(PREFIX)).expanduser())
    if str(run).startswith(PREFIX):
        return None
    check_kept(run)
    entry = find_entry(run)
    if task is not None and entry.name != task:
        raise RegardError(f"{run} {entry.does}: use {name_program()} {entry.use}.")
    open_file(Path(run) / WEIGHTS, RESTORE).close()
    return entry


def answer(
    lines: list[str] | None,
    ask: Callable[..., list[Answer]],
    write: Callable[[Sequence[Answer]], Iterable[str]],
    note: Callable[[Sequence[Answer]], None] = lambda found: None,
    *,
    title: str,
    output: Path | None = None,
    units: str = "sentences",
) -> list[Answer]:
    """Predict for all lines at once and write the answers, or for each line as it is typed; then print the notes."""
    if lines is None:
        print(f"{units.capitalize()}, one per line; Ctrl-D ends.", file=sys.stderr)
        for line in read_stream():
            found = ask([line])
            _print(write(found))
            note(found)
        return []
    with show_progress(title, len(lines)) as on_progress:
        found = ask(lines, on_progress=on_progress)
    if output is None:
        _print(write(found))
    else:
        written = list(write(found))
        write_lines(output, written)
        print(f"{len(written):,} {'line' if len(written) == 1 else 'lines'} in {output}", file=sys.stderr)
    note(found)
    return found


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()


def find_longest(run: str | Path) -> int | None:
    """The tokens of the longest text that a run was trained on; None where it does not say."""
    from regard.models.layout import read_config

    entries = {} if str(run).startswith(PREFIX) else read_config(Path(run).expanduser())
    longest = entries.get("training", {}).get("longest")
    return longest if type(longest) is int and longest > 0 else None


def name_beyond(run: str | Path) -> Callable[[Sequence[Any]], None]:
    """A function that notes which sentences have unknown tokens, or are longer than any in training."""
    longest = find_longest(run)

    def note(found: Sequence[Any]) -> None:
        name_unknown(found)
        beyond = [number for number, one in enumerate(found, 1) if longest and one.num_tokens > longest]
        if beyond:
            which = name_some(beyond, len(found))
            print(
                f"Longer than any text in training ({longest} tokens): {which}. Expect worse answers.", file=sys.stderr
            )

    return note


def name_unknown(found: Sequence[Any]) -> None:
    """Note which sentences have unknown tokens."""
    unknown = [number for number, one in enumerate(found, 1) if one.unknown]
    if unknown:
        print(f"Parts of {name_some(unknown, len(found))} are unknown to this run.", file=sys.stderr)


def name_some(numbers: Sequence[int], total: int) -> str:
    """Sentences by their numbers, in words.

    >>> name_some([2], 3), name_some([1], 1), name_some([2, 3], 3)
    ('sentence 2', 'the sentence', '2 sentences (the first is sentence 2)')
    """
    if len(numbers) > 1:
        return f"{len(numbers)} sentences (the first is sentence {numbers[0]})"
    return "the sentence" if total == 1 else f"sentence {numbers[0]}"
