"""`regard NAME RUN …` for any task: the command for inference of one that has none of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force
from regard.cli.options.spread import Some
from regard.tasks.registry import Entry


def make_asking(entry: Entry) -> Callable[..., None]:
    """The command for inference with runs of a task, by the `answer` of its loader."""
    units, title = entry.units, entry.units.capitalize()
    argument = typer.Argument(metavar="INPUT", help=f"{title}.  [default: stdin, one per line]")
    lines = Some("FILE", f"Read {units} from a file, one per line, plain or .gz.  [default: stdin]")
    size = typer.Option(metavar="N", min=1, help=f"{title} per batch; more take more memory.")

    def ask(
        run: asking.Run,
        given: list[str] | None = None,
        input: Path | None = None,
        output: asking.Output = None,
        force: Force = False,
        batch_size: int = 64,
        device: asking.Device = "auto",
        as_json: asking.AsJson = False,
    ) -> None:
        asking.check_asked(given, input, output, force, units)
        asking.check_run(run, device, entry.name)
        asked = asking.read_asked(given, input, is_typed=output is None)
        loaded = entry.open("loader").load(run, device)

        def answer(lines: Sequence[str], **options: Any) -> list[Any]:
            found: list[Any] = loaded.answer(lines, batch_size=batch_size, **options)
            return found

        asking.answer(asked, answer, _write_json if as_json else _write, title=entry.use, output=output, units=units)

    ask.__annotations__ |= {
        "given": Annotated[list[str] | None, argument], "input": Annotated[Path | None, lines],
        "batch_size": Annotated[int, size],
    }  # fmt: skip
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
        yield json.dumps(asdict(one) if hasattr(one, "__dataclass_fields__") else one, ensure_ascii=False)
