"""`regard train tag`: train a tagger on tagged sentences."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from regard.cli.options.encoder import Encoding, Metric, Model
from regard.cli.options.examples import Texts
from regard.cli.options.spread import drop_none, spread
from regard.cli.options.training import Out, Training

EXAMPLES = """\
  regard train tag --out runs/tags
  regard train tag --data train.conllu --valid dev.conllu --model gru --preset small --out runs/ewt
  regard train tag --data train.conllu --valid dev.conllu --from hf:models/minilm --out runs/bert"""

# defaults that a test compares with the job's
SAID = {
    "builtin": "the built-in phrasebook",
    "epochs": "10; from a BERT 4", "lr": "0.001; from a BERT 5e-05", "schedule": "cosine; from a BERT linear",
    "weight_decay": "0.01", "average": "0.995; from a BERT 0", "tokens": "the words of the data", "vocab_size": "20000",
    "lowercase": "lower case", "letters": "where tokens are words", "max_length": "512",
    "longer": "longer sentences are not trained on", "label_smoothing": "0.1",
}  # fmt: skip


@partial(spread, said=SAID)
def tag(
    *,
    out: Out = None,
    texts: Texts,
    column: Annotated[
        str, typer.Option(metavar="NAME", help="Column of the tags in CoNLL-U: upos, xpos, or another by its name.")
    ] = "upos",
    model: Model = "attention",
    encoding: Encoding,
    metric: Metric = None,
    training: Training,
) -> None:
    """Train a tagger, one tag per word, or resume a run.

    Reads CoNLL-U (.conllu, .conll) and two columns, a word and its tag per line with a blank line after each sentence
    (.tsv, .txt); also .gz. Without --data it learns the parts of speech of the built-in phrasebook, in English. Stop it
    at any moment: the same command resumes it, with the same result.
    """
    given = encoding.read()

    from regard.tasks.text.tag import TaggedCorpus, TagJob

    corpus = TaggedCorpus(column=column, **texts.settings)
    job = TagJob.default(model, recipe=training.recipe, corpus=corpus, **given, **drop_none({"metric": metric}))
    training.run(job, out)
