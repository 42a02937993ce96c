"""`regard train classify`: train a text classifier on labelled texts."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from regard.cli.options.encoder import Encoding, Metric, Model
from regard.cli.options.examples import Header, LabelColumns, LabelKeys, Texts, read_label_columns, read_two
from regard.cli.options.spread import Some, drop_none, spread
from regard.cli.options.training import Out, Training

EXAMPLES = """\
  regard train classify --out runs/tone
  regard train classify --data train.tsv --columns 2,1 --valid dev.tsv --out runs/sst
  regard train classify --data table.csv --columns 3,1 --header --out runs/table
  regard train classify --data reviews.csv --columns review,label --pooling hard --out runs/reviews
  regard train classify --data train.tsv --from hf:models/minilm --out runs/bert"""

# defaults that a test compares with the job's
SAID = {
    "builtin": "the built-in phrasebook",
    "epochs": "10; from a BERT 4", "lr": "0.001; from a BERT 5e-05", "schedule": "cosine; from a BERT linear",
    "weight_decay": "0.01", "average": "0.99; from a BERT 0",
    "tokens": "characters for Chinese and the like, else words", "vocab_size": "20000",
    "lowercase": "keep case", "letters": "where tokens are words", "max_length": "512",
    "longer": "the rest of a longer one is not read", "label_smoothing": "0",
}  # fmt: skip


@partial(spread, said=SAID)
def classify(
    *,
    out: Out = None,
    texts: Texts,
    columns: LabelColumns = None,
    keys: LabelKeys = "text,label",
    header: Header = False,
    model: Model = "attention",
    encoding: Encoding,
    pooling: Annotated[
        str | None,
        Some(
            "NAME",
            "Pooling of a text into one vector: soft or hard (attention), mean, max or first (token).  [default: soft;"
            " with --from, what that has]",
        ),
    ] = None,
    metric: Metric = None,
    training: Training,
) -> None:
    """Train a text classifier, one label per text, or resume a run.

    Reads TSV, CSV and JSONL (also .gz), and folders with one folder of .txt files per label. Without --data it learns
    how polite the sentences of the built-in phrasebook are. Stop it at any moment: the same command resumes it, with
    the same result.
    """
    chosen, named = read_label_columns(columns), read_two("--keys", keys)
    given = encoding.read(pooling=pooling)

    from regard.tasks.text.classify import ClassifyJob, LabelledCorpus

    corpus = LabelledCorpus(columns=chosen, keys=named, header=header, **texts.settings)
    job = ClassifyJob.default(model, recipe=training.recipe, corpus=corpus, **given, **drop_none({"metric": metric}))
    training.run(job, out)
