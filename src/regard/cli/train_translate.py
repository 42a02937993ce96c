"""`regard train translate`: from sentence pairs to a run."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.corpus import Columns, Data, Keys, Member, Swap, read_columns, read_two
from regard.cli.options import Some, drop_none, read_changes, spread
from regard.cli.training import Changes, HeldOut, Limit, Out, Preset, Training, Valid

EXAMPLES = """\
  regard train translate --out runs/demo
  regard train translate --data cmn.txt --swap --model transformer --preset small --out runs/zh
  regard train translate --data train.en --data train.de --valid val.en --valid val.de --out runs/de
  torchrun --nproc-per-node 2 -m regard train translate --data pairs.tsv --out runs/two"""


@spread
def translate(
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
    model: Annotated[str, typer.Option(metavar="NAME", help="bahdanau or transformer.")] = "bahdanau",
    preset: Preset = "tiny",
    set_: Changes = None,
    tokens: Annotated[
        str, typer.Option(metavar="KIND", help="auto, bpe, words, spaces or characters; two with a comma, a side each.")
    ] = "auto",
    vocab_size: Annotated[int, typer.Option(metavar="N", help="Most tokens of a vocabulary.")] = 8000,
    min_count: Annotated[int, typer.Option(metavar="N", min=1, help="Rarer tokens are not learned.")] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Learn from text in lower case.")] = False,
    form: Annotated[str, typer.Option(metavar="FORM", help="Unicode: NFC, or NFKC to fold widths.")] = "NFC",
    shared: Annotated[
        bool | None, Some(None, "One vocabulary for both sides.  [default: by the model]", "--shared/--apart")
    ] = None,
    joiner: Annotated[
        str | None, Some("MARK", "Marks cuts within words of text that comes with them, as '@@ '.")
    ] = None,
    batch_size: Annotated[
        int | None, Some("N", "Pairs in a batch.  [default: 64, or as --max-tokens fits]", min=1)
    ] = None,
    max_tokens: Annotated[int | None, Some("N", "Places in a batch, padding counted.", min=1)] = None,
    max_length: Annotated[int, typer.Option(metavar="N", min=1, help="Longer pairs are left out, in tokens.")] = 256,
    label_smoothing: Annotated[float, typer.Option(metavar="X", help="Of the targets, in training.")] = 0.1,
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="Which weights are best by: loss, bleu or exact.")
    ] = "loss",
    training: Training,
) -> None:
    """Train a translator on sentence pairs, or go on with one.

    Without --data it learns the embedded phrasebook, Chinese to English. Stop it at any moment, by Ctrl-C or harder:
    the same command goes on, and comes to the same end.
    """
    numbers, named = read_columns(columns), read_two("--keys", keys)
    kinds = [part.strip() for part in tokens.split(",")]
    if len(kinds) > 2:
        raise typer.BadParameter(f"--tokens must be one kind, or two with a comma between, got {tokens!r}")
    changes = read_changes(set_)

    from regard.tasks.corpus import Corpus
    from regard.tasks.translate_job import Job

    corpus = Corpus(
        tuple(data or Corpus.data), tuple(valid or ()), columns=numbers, keys=named, swap=swap, member=member,
        held_out=held_out, limit=limit,
    )  # fmt: skip
    job = Job.default(
        model, recipe=training.recipe, preset=preset, changes=changes, corpus=corpus,
        source_tokens=kinds[0], target_tokens=kinds[-1], vocab_size=vocab_size, min_count=min_count,
        lowercase=lowercase, form=form, is_shared=shared, joiner=joiner, max_tokens=max_tokens, max_length=max_length,
        metric=metric, label_smoothing=label_smoothing, **drop_none({"batch_size": batch_size}),
    )  # fmt: skip
    training.run(job, out, 'translate {run} "a sentence"')
