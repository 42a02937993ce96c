"""`regard fill`: words for the blanks of texts, by a masked language model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force

if TYPE_CHECKING:
    from regard.tasks.text.filler import Filled

EXAMPLES = """\
  regard fill runs/words "please give me two ___ to xi'an"
  regard fill hf:models/bert "The cat sat on the [MASK]." --top 3 --json"""


def fill(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Folder of a run of train pretrain, or hf:FOLDER with a BERT.", show_default=False
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts with ___ for masked words.  [default: stdin, one per line]"),
    ] = None,
    input: asking.Input = None,
    output: asking.Output = None,
    force: Force = False,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Candidates per blank, the most probable first.")] = 5,
    device: asking.Device = "auto",
    as_json: asking.AsJson = False,
) -> None:
    """Predict the words that ___, <mask> or [MASK] stand for.

    Prints the text with the best words on stdout, and below it, for each blank, the best words and their probabilities.
    """
    asking.check_asked(text, input, output, force)
    asking.check_run(run, device, "pretrain")
    lines = asking.read_asked(text, input, is_typed=output is None)

    from regard.tasks.text.filler import Filler

    filler = Filler.load(run, device)

    def ask(lines: list[str], on_progress: Callable[[int, int], None] | None = None) -> list[Filled]:
        found = []
        for line in lines:
            found.append(filler.fill(line, top))
            if on_progress is not None:
                on_progress(len(found), len(lines))
        return found

    write = _write_json if as_json else _write
    asking.answer(lines, ask, write, asking.name_beyond(run), title="guessing", output=output)


def _write(found: Sequence[Filled]) -> Iterator[str]:
    for one in found:
        yield " ".join(one.text.splitlines())
        for guesses in one.guesses:
            yield "  " + "  ".join(f"{guess.word} {guess.score:.2f}" for guess in guesses)


def _write_json(found: Sequence[Filled]) -> Iterator[str]:
    for one in found:
        guesses = [[{"word": guess.word, "score": round(guess.score, 6)} for guess in some] for some in one.guesses]
        yield json.dumps({"source": one.source, "text": one.text, "guesses": guesses}, ensure_ascii=False)
