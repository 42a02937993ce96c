"""`regard train classify`: from labelled texts to a run."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.corpus import LabelColumns, LabelKeys, read_label_columns, read_two
from regard.cli.encoder import Encoding, Metric, Model, Texts
from regard.cli.options import Some, drop_none, spread
from regard.cli.training import Out, Training

EXAMPLES = """\
  regard train classify --out runs/tone
  regard train classify --data train.tsv --columns 2,1 --valid dev.tsv --out runs/sst
  regard train classify --data table.csv --columns 3,1 --header --out runs/table
  regard train classify --data reviews.csv --columns review,label --pooling hard --out runs/reviews
  regard train classify --data train.tsv --from hf:models/minilm --out runs/bert"""

Header = Annotated[bool, typer.Option("--header", help="Of TSV and CSV with counted columns: skip the first row.")]


@spread
def classify(
    *,
    out: Out,
    texts: Texts,
    columns: LabelColumns = None,
    keys: LabelKeys = "text,label",
    header: Header = False,
    model: Model = "attention",
    encoding: Encoding,
    pooling: Annotated[
        str | None,
        Some("NAME", "How a text becomes one vector: soft, hard, mean, max or first.  [default: by the task]"),
    ] = None,
    metric: Metric = None,
    training: Training,
) -> None:
    """Train a classifier, one label a text, or go on with one.

    Reads TSV, CSV and JSONL (.gz, too), and folders with a folder of .txt files for each label. Without --data it
    learns how polite the sentences of the embedded phrasebook are. Stop it at any moment: the same command goes on, and
    comes to the same end.
    """
    chosen, named = read_label_columns(columns), read_two("--keys", keys)
    given = encoding.read(pooling=pooling)

    from regard.tasks.classify import ClassifyJob, LabelledCorpus

    corpus = LabelledCorpus(columns=chosen, keys=named, header=header, **texts.settings)
    job = ClassifyJob.default(model, recipe=training.recipe, corpus=corpus, **given, **drop_none({"metric": metric}))
    training.run(job, out, 'classify {run} "a sentence"')
