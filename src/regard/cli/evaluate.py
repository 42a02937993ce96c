"""`regard evaluate`: the metrics of a trained run on test data."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force, check_place, show_progress, write_lines
from regard.cli.options.scoring import AnswerScoring, Scoring
from regard.cli.options.spread import Some, join_options, spread
from regard.tasks.registry import Entry, find_entry, list_tasks

EXAMPLES = """\
  regard evaluate runs/demo
  regard evaluate runs/de --data test.de --data test.en --lowercase --json
  regard evaluate runs/tags --data test.conllu
  regard evaluate runs/sst --data test.tsv --columns 2,1"""

# the options of all tasks
Options: Any = join_options([AnswerScoring, *(x.open("scoring") for x in list_tasks().values() if x.scoring)])


@spread
def evaluate(
    run: asking.Run,
    data: Annotated[
        list[str] | None,
        Some("FILE", "Test data, given as for training; repeat for more.  [default: what the run held out]"),
    ] = None,
    *,
    options: Options,
    limit: Annotated[int | None, Some("N", "Evaluate on the first N examples only.  [default: all]", min=1)] = None,
    batch_size: Annotated[
        int, typer.Option(metavar="N", min=1, help="Examples per batch; more take more memory.")
    ] = 64,
    force: Force = False,
    device: asking.Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object.")] = False,
) -> None:
    """Evaluate a trained run on test data, which it was not trained on."""
    check_place("--output", options.output, force)
    asking.check_run(run, device)
    entry = find_entry(run)
    chosen = choose_options(run, entry, options)

    from regard.tasks.training.held_out import find_examples

    # what is asked is read before the model: a wrong name shows at once
    asked = find_examples(run, entry, data or (), limit, chosen.changes)
    result = entry.open("scorer")(
        run, asked, device=device, batch_size=batch_size, bar=show_progress, **chosen.options
    )  # fmt: skip
    if options.output is not None:
        write_lines(options.output, result.answers)
    speed = result.count / result.seconds
    if as_json:
        timing = {"seconds": round(result.seconds, 3), f"{entry.units}_per_second": round(speed, 1)}
        print(json.dumps({**result.entries, **timing}, ensure_ascii=False))
    else:
        print("\n".join(result.rows))
        print(f"{result.count} {entry.units} in {result.seconds:.1f} s, {speed:.1f} a second")
    sys.stdout.flush()
    for note in result.notes:
        print(note, file=sys.stderr)


evaluate.__doc__ = f"{evaluate.__doc__}\n\n{' '.join(x.measures for x in list_tasks().values() if x.measures)}"


def choose_options(run: Path, entry: Entry, given: Any) -> Scoring:
    """The options that were given of the task's own; those given of other tasks are refused."""
    kind: Any = entry.open("scoring") if entry.scoring else AnswerScoring
    has = {x.name for x in fields(kind)}
    for option in fields(given):
        if option.name not in has and getattr(given, option.name) != option.default:
            name = option.name.replace("_", "-")
            raise typer.BadParameter(f"--{name} is not for {run}, which {entry.does}: leave it out")
    found: Scoring = kind(**{name: value for name, value in asdict(given).items() if name in has})
    return found
