"""`regard tag`: predict a tag for each word of sentences by a trained run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force

if TYPE_CHECKING:
    from regard.tasks.text.tagger import Tagged

EXAMPLES = """\
  regard tag runs/tags "please give me two tickets to xi'an"
  regard tag runs/tags --input a.txt --format conllu --output a.conllu
  echo "The cat sat ." | regard tag runs/tags --words --json"""

FORMATS = ("line", "words", "conllu")


def tag(
    run: asking.Run,
    text: asking.Text = None,
    input: asking.Input = None,
    output: asking.Output = None,
    force: Force = False,
    words: Annotated[
        bool, typer.Option("--words", help="The input is tokenised: words and punctuation stand between spaces.")
    ] = False,
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Output format: line (word/TAG, a sentence per line), words (a word and its tag per line) or conllu.",
        ),
    ] = "line",
    batch_size: asking.BatchSize = 64,
    device: asking.Device = "auto",
    as_json: asking.AsJson = False,
) -> None:
    """Tag each word of sentences with a trained run.

    Prints the tags on stdout, and notes on stderr.
    """
    asking.check_asked(text, input, output, force)
    if format not in FORMATS:
        raise typer.BadParameter(f"--format must be one of {', '.join(FORMATS)}, got {format!r}")
    if as_json and format != "line":
        raise typer.BadParameter("give --json or --format, not both")
    asking.check_run(run, device, "tag")
    lines = asking.read_asked(text, input, is_typed=output is None)

    from regard.tasks.text.tagger import Tagger

    tagger = Tagger.load(run, device)

    def ask(lines: list[str], **options: Any) -> list[Tagged]:
        given: list[Any] = [line.split() if words else line for line in lines]
        return tagger.tag(given, batch_size=batch_size, **options)

    write = _write_json if as_json else {"line": _write_lines, "words": _write_words}.get(format)
    if write is None:
        write = partial(_write_conllu, column=_find_column(run))
    asking.answer(lines, ask, write, asking.name_beyond(run), title="tagging", output=output)


def _write_lines(found: Sequence[Tagged]) -> Iterator[str]:
    for one in found:
        yield " ".join(f"{word}/{tag}" for word, tag in zip(one.words, one.tags, strict=True))


def _write_words(found: Sequence[Tagged]) -> Iterator[str]:
    for one in found:
        yield from (f"{word}\t{tag}" for word, tag in zip(one.words, one.tags, strict=True))
        yield ""


def _write_json(found: Sequence[Tagged]) -> Iterator[str]:
    for one in found:
        row = {"words": one.words, "tags": one.tags, "scores": [round(score, 6) for score in one.scores]}
        yield json.dumps(row, ensure_ascii=False)


def _write_conllu(found: Sequence[Tagged], column: int) -> Iterator[str]:
    for one in found:
        if not one.words:
            # no sentence of this format is empty
            continue
        for number, (word, tag) in enumerate(zip(one.words, one.tags, strict=True), 1):
            cells = [str(number), word, *["_"] * 8]
            cells[column] = tag
            yield "\t".join(cells)
        yield ""


def _find_column(run: Path) -> int:
    """The column of CoNLL-U for the tags of a run: the one that it was trained on."""
    from regard.data.tagged import NAMES
    from regard.models.layout import read_config

    corpus = read_config(run).get("training", {}).get("corpus")
    name = corpus.get("column") if isinstance(corpus, dict) else None
    return NAMES.index(name if name in NAMES[2:] else "upos")
