"""`regard train tag`: from tagged sentences to a run."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.encoder import Encoding, Metric, Model, Texts
from regard.cli.options import drop_none, spread
from regard.cli.training import Out, Training

EXAMPLES = """\
  regard train tag --out runs/tags
  regard train tag --data train.conllu --valid dev.conllu --model gru --preset small --out runs/ewt
  regard train tag --data train.conllu --valid dev.conllu --from hf:models/minilm --out runs/bert"""


@spread
def tag(
    *,
    out: Out,
    texts: Texts,
    column: Annotated[
        str, typer.Option(metavar="NAME", help="Of CoNLL-U: upos, xpos, or another column that tags.")
    ] = "upos",
    model: Model = "attention",
    encoding: Encoding,
    metric: Metric = None,
    training: Training,
) -> None:
    """Train a tagger, one tag a word, or go on with one.

    Reads CoNLL-U (.conllu, .conll) and two columns, a word and its tag a line with a blank line behind each sentence
    (.tsv, .txt); .gz, too. Without --data it learns the parts of speech of the embedded phrasebook, in English. Stop it
    at any moment: the same command goes on, and comes to the same end.
    """
    given = encoding.read()

    from regard.tasks.tag import TaggedCorpus, TagJob

    corpus = TaggedCorpus(column=column, **texts.settings)
    job = TagJob.default(model, recipe=training.recipe, corpus=corpus, **given, **drop_none({"metric": metric}))
    training.run(job, out, 'tag {run} "a sentence"')
