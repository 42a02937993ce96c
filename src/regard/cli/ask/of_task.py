"""`regard NAME RUN …` for any task: the command that one without a command of its own has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force
from regard.tasks.registry import Entry


def make_asking(entry: Entry) -> Callable[..., None]:
    """The command that asks a run of a task, by the `answer` of its loader."""
    argument = typer.Argument(metavar="INPUT", help=f"What is asked: {entry.units}.  [default: stdin, one per line]")

    def ask(
        run: asking.Run,
        given: Annotated[list[str] | None, argument] = None,
        input: asking.Input = None,
        output: asking.Output = None,
        force: Force = False,
        batch_size: asking.BatchSize = 64,
        device: asking.Device = "auto",
        as_json: asking.AsJson = False,
    ) -> None:
        asking.check_asked(given, input, output, force)
        asking.check_run(run, device, entry.name)
        lines = asking.read_asked(given, input, is_typed=output is None)
        loaded = entry.open("loader").load(run, device)

        def answer(lines: Sequence[str], **options: Any) -> list[Any]:
            found: list[Any] = loaded.answer(lines, batch_size=batch_size, **options)
            return found

        asking.answer(lines, answer, _write_json if as_json else _write, title=entry.use, output=output)

    ask.__annotations__["given"] = Annotated[list[str] | None, argument]
    ask.__doc__ = f"Ask a trained run, which {entry.does}.\n\nPrints an answer per line on stdout, and notes on stderr."
    ask.examples = (  # type: ignore[attr-defined]
        f"  regard {entry.use} runs/{entry.name} {entry.sample}\n"
        f"  regard {entry.use} runs/{entry.name} --input asked.txt --json --output answers.jsonl"
    )
    return ask


def _write(found: Sequence[Any]) -> Iterator[str]:
    for one in found:
        yield " ".join(str(one).splitlines())


def _write_json(found: Sequence[Any]) -> Iterator[str]:
    for one in found:
        yield json.dumps(asdict(one), ensure_ascii=False)
