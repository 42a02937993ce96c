"""`regard train pretrain`: pre-train an encoder on plain text, to fine-tune others from."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from regard.cli.options.encoder import Encoding, Model
from regard.cli.options.examples import Texts, read_column
from regard.cli.options.spread import Some, drop_none, spread
from regard.cli.options.training import Out, Training

EXAMPLES = """\
  regard train pretrain --out runs/words
  regard train pretrain --data books.txt.gz --preset small --max-tokens 8000 --out runs/books
  regard train pretrain --data reviews.csv --column review --out runs/words
  regard train classify --data train.tsv --from runs/words --out runs/labels"""

# defaults that a test compares with the job's
SAID = {
    "builtin": "the built-in phrasebook",
    "epochs": "10", "lr": "0.001; from a BERT 0.0001", "schedule": "cosine; from a BERT linear", "weight_decay": "0.01",
    "average": "0.998; from a BERT 0", "tokens": "characters for Chinese and the like, else words",
    "vocab_size": "20000", "lowercase": "keep case", "letters": "off", "max_length": "512",
    "longer": "longer ones are split", "label_smoothing": "0",
}  # fmt: skip


@partial(spread, said=SAID)
def pretrain(
    *,
    out: Out = None,
    texts: Texts,
    column: Annotated[
        str | None,
        Some(
            "N",
            "Column of the text in TSV and CSV: a number from 1, or a name in the first row.  [default: as the first"
            " row names it, else 1]",
        ),
    ] = None,
    key: Annotated[str, typer.Option(metavar="NAME", help="Key of the text in JSONL.")] = "text",
    model: Model = "attention",
    encoding: Encoding,
    rate: Annotated[float | None, Some("X", "Fraction of the tokens to mask, in (0, 1).  [default: 0.15]")] = None,
    next_sentence: Annotated[
        bool,
        typer.Option("--next-sentence", help="Add next-sentence prediction; blank lines separate documents."),
    ] = False,
    metric: Annotated[
        str | None, Some("NAME", "Validation metric that selects the best weights: loss or accuracy.  [default: loss]")
    ] = None,
    training: Training,
) -> None:
    """Pre-train an encoder on plain text by masked language modelling, or resume a run.

    Reads plain text, one text per line (.txt, also .gz), folders of it, or the text of TSV, CSV, JSONL and CoNLL-U.
    Without --data it learns the English of the built-in phrasebook. `train tag`, `train classify` and `train summarize`
    fine-tune it by --from. Stop it at any moment: the same command resumes it, with the same result.
    """
    given = encoding.read()

    from regard.tasks.text.pretrain_job import PretrainJob, TextCorpus

    corpus = TextCorpus(column=None if column is None else read_column(column), key=key, **texts.settings)
    given |= drop_none({"metric": metric, "rate": rate, "has_next": next_sentence or None})
    job = PretrainJob.default(model, recipe=training.recipe, corpus=corpus, **given)
    training.run(job, out)
