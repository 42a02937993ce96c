"""`regard train pretrain`: from plain text to a run that others begin from."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.corpus import read_column
from regard.cli.encoder import Encoding, Model, Texts
from regard.cli.options import Some, drop_none, spread
from regard.cli.training import Out, Training

EXAMPLES = """\
  regard train pretrain --out runs/words
  regard train pretrain --data books.txt.gz --preset small --max-tokens 8000 --out runs/books
  regard train pretrain --data reviews.csv --column review --out runs/words
  regard train classify --data train.tsv --from runs/words --out runs/labels"""


@spread
def pretrain(
    *,
    out: Out,
    texts: Texts,
    column: Annotated[
        str | None,
        Some("N", "Of TSV and CSV: the text, counted from 1 or by name.  [default: by the first row, or 1]"),
    ] = None,
    key: Annotated[str, typer.Option(metavar="NAME", help="Of JSONL: the text.")] = "text",
    model: Model = "attention",
    encoding: Encoding,
    rate: Annotated[float | None, Some("X", "Part of the words to hide.  [default: 0.15]")] = None,
    next_sentence: Annotated[
        bool,
        typer.Option("--next-sentence", help="Learn also which text follows; a blank line parts two documents."),
    ] = False,
    metric: Annotated[str | None, Some("NAME", "Which weights are best by: loss or accuracy.  [default: loss]")] = None,
    training: Training,
) -> None:
    """Let an encoder learn from plain text, by guessing hidden words, or go on with one.

    Reads plain text, a text a line (.txt, .gz, too), folders of it, or the text of TSV, CSV, JSONL and CoNLL-U. Without
    --data it learns the English of the embedded phrasebook. Train tag, classify and summarize can begin from it, by
    --from. Stop it at any moment: the same command goes on, and comes to the same end.
    """
    given = encoding.read()

    from regard.tasks.pretrain_job import PretrainJob, TextCorpus

    corpus = TextCorpus(column=None if column is None else read_column(column), key=key, **texts.settings)
    given |= drop_none({"metric": metric, "rate": rate, "has_next": next_sentence or None})
    job = PretrainJob.default(model, recipe=training.recipe, corpus=corpus, **given)
    training.run(job, out, 'fill {run} "a ___ with a blank"')
