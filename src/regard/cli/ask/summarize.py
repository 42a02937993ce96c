"""`regard summarize`: shorten sentences (sentence compression) by a trained run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force
from regard.cli.options.spread import Some

if TYPE_CHECKING:
    from regard.tasks.text.summarizer import Summary

EXAMPLES = """\
  regard summarize runs/short "please give me two tickets to xi'an"
  regard summarize runs/news --input long.txt --ratio 0.3 --output short.txt
  echo "give me two tickets" | regard summarize runs/short --json"""


def summarize(
    run: asking.Run,
    text: asking.Text = None,
    input: asking.Input = None,
    output: asking.Output = None,
    force: Force = False,
    ratio: Annotated[
        float | None, Some("X", "Fraction of the words to keep, in (0, 1].  [default: those more likely kept than not]")
    ] = None,
    batch_size: asking.BatchSize = 64,
    device: asking.Device = "auto",
    as_json: asking.AsJson = False,
) -> None:
    """Shorten sentences (sentence compression) with a trained run.

    Prints one shorter sentence per line on stdout, and notes on stderr.
    """
    asking.check_asked(text, input, output, force)
    asking.check_run(run, device, "summarize")
    lines = asking.read_asked(text, input, is_typed=output is None)

    from regard.tasks.text.summarizer import Summarizer

    summarizer = Summarizer.load(run, device)
    ask = partial(summarizer.summarize, ratio=ratio, batch_size=batch_size)
    write = _write_json if as_json else _write
    asking.answer(lines, ask, write, asking.name_beyond(run), title="shortening", output=output)


def _write(found: Sequence[Summary]) -> Iterator[str]:
    for one in found:
        # a line for a line, whatever the model says
        yield " ".join(one.text.splitlines())


def _write_json(found: Sequence[Summary]) -> Iterator[str]:
    for one in found:
        row: dict[str, Any] = {"source": one.source, "summary": one.text}
        if one.kept is not None:
            row |= {"words": one.words, "kept": one.kept, "scores": [round(score, 6) for score in one.scores]}
        yield json.dumps(row, ensure_ascii=False)
