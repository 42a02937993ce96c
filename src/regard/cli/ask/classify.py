"""`regard classify`: predict a label for each text by a trained run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force

if TYPE_CHECKING:
    from regard.tasks.text.classifier import Classified

EXAMPLES = """\
  regard classify runs/tone "could you please give me the menu"
  regard classify runs/sst --input reviews.txt --output labels.tsv
  echo "a film to remember" | regard classify runs/sst --json"""


def classify(
    run: asking.Run,
    text: asking.Text = None,
    input: asking.Input = None,
    output: asking.Output = None,
    force: Force = False,
    batch_size: asking.BatchSize = 64,
    device: asking.Device = "auto",
    as_json: asking.AsJson = False,
) -> None:
    """Label texts with a trained run.

    Prints one line per text on stdout: its label, the label's probability and the text, separated by tabs. Notes go to
    stderr.
    """
    asking.check_asked(text, input, output, force)
    asking.check_run(run, device, "classify")
    lines = asking.read_asked(text, input, is_typed=output is None)

    from regard.tasks.text.classifier import Classifier

    classifier = Classifier.load(run, device)

    beyond = asking.name_beyond(run)

    def note(found: Sequence[Classified]) -> None:
        beyond(found)
        cut = [number for number, one in enumerate(found, 1) if one.num_left_out]
        if cut:
            which, most = asking.name_some(cut, len(found)), classifier.max_length
            print(f"The end of {which} is not read: this run reads {most} tokens of a text.", file=sys.stderr)

    ask = partial(classifier.classify, batch_size=batch_size)
    asking.answer(lines, ask, _write_json if as_json else _write, note, title="labelling", output=output)


def _write(found: Sequence[Classified]) -> Iterator[str]:
    from regard.views.labels import show_line

    for one in found:
        # a line for a line, and three columns, whatever the text holds
        yield f"{show_line(one.label)}\t{one.score:.2f}\t{' '.join(one.text.split())}"


def _write_json(found: Sequence[Classified]) -> Iterator[str]:
    for one in found:
        scores = {label: round(score, 6) for label, score in one.scores.items()}
        row: dict[str, Any] = {"text": one.text, "label": one.label, "score": scores[one.label], "scores": scores}
        yield json.dumps({**row, "left_out": one.num_left_out}, ensure_ascii=False)
