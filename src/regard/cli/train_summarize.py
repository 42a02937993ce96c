"""`regard train summarize`: from sentences and shorter ones to a run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from regard.cli.corpus import Columns, Data, Keys, Member, Swap, read_columns, read_two
from regard.cli.encoder import Encoding
from regard.cli.options import Some, drop_none, spread
from regard.cli.training import HeldOut, Limit, Out, Training, Valid

EXAMPLES = """\
  regard train summarize --out runs/short
  regard train summarize --data long.txt.gz --data short.txt.gz --model gru --preset small --out runs/news
  regard train summarize --data pairs.tsv --how rewrite --model transformer --out runs/anew"""

HOWS = ("keep", "rewrite")
# of keep alone
OWN = {"start": "from", "has_letters": "letters"}


@spread
def summarize(
    *,
    out: Out,
    data: Data = None,
    valid: Valid = None,
    columns: Columns = "1,2",
    keys: Keys = "source,target",
    swap: Swap = False,
    member: Member = None,
    held_out: HeldOut = None,
    limit: Limit = None,
    how: Annotated[
        str, typer.Option(metavar="NAME", help="keep: keep or drop each word; rewrite: say it anew.")
    ] = "keep",
    model: Annotated[
        str | None,
        Some(
            "NAME", "attention, gru or cnn; to rewrite, bahdanau or transformer.  [default: attention, or bahdanau]"
        ),
    ] = None,
    encoding: Encoding,
    metric: Annotated[
        str | None,
        Some("NAME", "Which weights are best by: loss, accuracy or f1; to rewrite, loss, bleu or exact.  [default: f1,"
             " or loss]"),
    ] = None,
    training: Training,
) -> None:  # fmt: skip
    """Train a model that shortens sentences, or go on with one.

    Reads pairs of a sentence and a shorter one, as train translate does. Without --data it learns to write telegrams of
    the embedded phrasebook. Stop it at any moment: the same command goes on, and comes to the same end.
    """
    if how not in HOWS:
        raise typer.BadParameter(f"--how must be one of {', '.join(HOWS)}, got {how!r}")
    numbers, named = read_columns(columns), read_two("--keys", keys)
    given: dict[str, Any] = encoding.read() | drop_none({"metric": metric})

    from regard.tasks.summarize_job import RewriteJob, ShortCorpus, SummarizeJob

    corpus = ShortCorpus(
        tuple(data or ShortCorpus.data), tuple(valid or ()), columns=numbers, keys=named, swap=swap, member=member,
        held_out=held_out, limit=limit,
    )  # fmt: skip
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
    training.run(job, out, 'summarize {run} "a sentence that could be shorter"')
