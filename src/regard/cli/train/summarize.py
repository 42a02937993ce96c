"""`regard train summarize`: train sentence compression on sentences and shorter ones."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from regard.cli.options.encoder import Encoding
from regard.cli.options.examples import PairTexts
from regard.cli.options.spread import Some, drop_none, spread
from regard.cli.options.training import Out, Training

EXAMPLES = """\
  regard train summarize --out runs/short
  regard train summarize --data long.txt.gz --data short.txt.gz --model gru --preset small --out runs/news
  regard train summarize --data pairs.tsv --how rewrite --model transformer --out runs/anew"""

HOWS = ("keep", "rewrite")
# defaults that a test compares with the job's
SAID = {
    "epochs": "10; from a BERT 4", "lr": "0.001; from a BERT 5e-05; bahdanau 0.0015",
    "schedule": "cosine; from a BERT linear; transformer inverse-sqrt",
    "weight_decay": "0.01; bahdanau 0; transformer 0.0001",
    "average": "0.99; from a BERT 0; bahdanau 0.995; transformer 0.998",
    "tokens": "the words of the data; rewrite: bpe, or characters for Chinese and the like",
    "vocab_size": "20000; rewrite: 8000", "lowercase": "lower case; rewrite: keep case",
    "letters": "where tokens are words", "max_length": "512; rewrite: 256",
    "longer": "longer sentences are not trained on", "label_smoothing": "0; rewrite: 0.1",
}  # fmt: skip
# of keep alone
OWN = {"start": "from", "has_letters": "letters"}


@partial(spread, said=SAID)
def summarize(
    *,
    out: Out = None,
    pairs: PairTexts,
    how: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="keep (extractive: keep or drop each word) or rewrite (abstractive: generate words)."
        ),
    ] = "keep",
    model: Annotated[
        str | None,
        Some(
            "NAME",
            "Architecture: attention, gru or cnn; to rewrite, bahdanau or transformer.  [default: attention; rewrite:"
            " bahdanau]",
        ),
    ] = None,
    encoding: Encoding,
    metric: Annotated[
        str | None,
        Some("NAME", "Validation metric that selects the best weights: loss, accuracy or f1 (of the words kept); to"
             " rewrite, loss, bleu or exact.  [default: f1; rewrite: loss]"),
    ] = None,
    training: Training,
) -> None:  # fmt: skip
    """Train a model that shortens sentences (sentence compression), or resume a run.

    Reads pairs of a sentence and a shorter one, as `train translate` does. Without --data it learns to turn sentences
    of the built-in phrasebook into telegrams. Stop it at any moment: the same command resumes it, with the same
    result.
    """
    if how not in HOWS:
        raise typer.BadParameter(f"--how must be one of {', '.join(HOWS)}, got {how!r}")
    found, given = pairs.settings, encoding.read() | drop_none({"metric": metric})

    from regard.tasks.text.summarize_job import RewriteJob, ShortCorpus, SummarizeJob

    corpus = ShortCorpus(**found)
    job: SummarizeJob | RewriteJob
    if how == "keep":
        job = SummarizeJob.default(model or "attention", recipe=training.recipe, corpus=corpus, **given)
    else:
        for name, option in OWN.items():
            if name in given:
                raise typer.BadParameter(f"--{option} is for --how keep: leave it out")
        if "tokens" in given:
            given["source_tokens"] = given["target_tokens"] = given.pop("tokens")
        job = RewriteJob.default(model or "bahdanau", recipe=training.recipe, corpus=corpus, **given)
    training.run(job, out)
