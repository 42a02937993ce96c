"""`regard train translate`: from sentence pairs to a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.corpus import Columns, Data, Keys, Member, Swap, read_columns, read_two
from regard.cli.files import name_program

EXAMPLES = """\
  regard train translate --out runs/demo
  regard train translate --data cmn.txt --swap --model transformer --preset small --out runs/zh
  regard train translate --data train.en --data train.de --valid val.en --valid val.de --out runs/de
  torchrun --nproc-per-node 2 -m regard train translate --data pairs.tsv --out runs/two"""

Maybe = dict[str, Any]


def Some(metavar: str, help: str, **limits: Any) -> Any:  # noqa: N802
    """An option whose default hangs on others."""
    return typer.Option(metavar=metavar, help=help, show_default=False, **limits)


def translate(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the run lives; one that is there goes on.")],
    data: Data = None,
    valid: Annotated[
        list[str] | None, Some("FILE", "Pairs to validate by, as --data.  [default: held out of --data]")
    ] = None,
    columns: Columns = "1,2",
    keys: Keys = "source,target",
    swap: Swap = False,
    member: Member = None,
    held_out: Annotated[
        float, typer.Option(metavar="X", help="Part of --data to validate by; as much for the test.")
    ] = 0.05,
    limit: Annotated[int | None, Some("N", "Learn from the first so many pairs only.", min=1)] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="bahdanau or transformer.")] = "bahdanau",
    preset: Annotated[str, typer.Option(metavar="NAME", help="Its size: tiny, small or base.")] = "tiny",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the model, as num_hiddens=512; repeat."),
    ] = None,
    tokens: Annotated[
        str, typer.Option(metavar="KIND", help="auto, bpe, words, spaces or characters; two with a comma, a side each.")
    ] = "auto",
    vocab_size: Annotated[int, typer.Option(metavar="N", help="Most tokens of a vocabulary.")] = 8000,
    min_count: Annotated[int, typer.Option(metavar="N", min=1, help="Rarer tokens are not learned.")] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Learn from text in lower case.")] = False,
    form: Annotated[str, typer.Option(metavar="FORM", help="Unicode: NFC, or NFKC to fold widths.")] = "NFC",
    shared: Annotated[
        bool | None,
        typer.Option(
            "--shared/--apart", help="One vocabulary for both sides.  [default: by the model]", show_default=False
        ),
    ] = None,
    joiner: Annotated[
        str | None, Some("MARK", "Marks cuts within words of text that comes with them, as '@@ '.")
    ] = None,
    epochs: Annotated[int, typer.Option(metavar="N", min=1, help="Times to go through the pairs.")] = 10,
    max_steps: Annotated[int | None, Some("N", "End after so many steps.", min=1)] = None,
    batch_size: Annotated[
        int | None, Some("N", "Pairs in a batch.  [default: 64, or as --max-tokens fits]", min=1)
    ] = None,
    max_tokens: Annotated[int | None, Some("N", "Places in a batch, padding counted.", min=1)] = None,
    max_length: Annotated[int, typer.Option(metavar="N", min=1, help="Longer pairs are left out, in tokens.")] = 256,
    accumulate: Annotated[int, typer.Option(metavar="N", min=1, help="Batches in a step.")] = 1,
    lr: Annotated[float | None, Some("X", "Learning rate at its top.  [default: by the model]")] = None,
    warmup: Annotated[int | None, Some("N", "Steps to the top.  [default: by the model]", min=0)] = None,
    schedule: Annotated[
        str | None, Some("NAME", "constant, linear, cosine or inverse-sqrt.  [default: by the model]")
    ] = None,
    weight_decay: Annotated[float | None, Some("X", "Of AdamW.  [default: by the model]")] = None,
    clip: Annotated[float, typer.Option(metavar="X", help="Longest gradient.")] = 1.0,
    label_smoothing: Annotated[float, typer.Option(metavar="X", help="Of the targets, in training.")] = 0.1,
    average: Annotated[
        float | None, Some("X", "Decay of a moving average of the weights; 0 is none.  [default: by the model]")
    ] = None,
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="Which weights are best by: loss, bleu or exact.")
    ] = "loss",
    patience: Annotated[int | None, Some("N", "End after so many validations without a better one.", min=1)] = None,
    validate_every: Annotated[int | None, Some("N", "Steps.  [default: an epoch]", min=1)] = None,
    save_every: Annotated[int, typer.Option(metavar="N", min=1, help="Steps; validations save too.")] = 500,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed, the same run.")] = 0,
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[str, typer.Option(metavar="N", help="How many, or which: 2, auto or 0,3.")] = "1",
    strategy: Annotated[str, typer.Option(metavar="NAME", help="auto, ddp or fsdp.")] = "auto",
    num_nodes: Annotated[int, typer.Option(metavar="N", min=1, help="Machines, under torchrun.")] = 1,
    precision: Annotated[
        str, typer.Option(metavar="NAME", help="32-true, bf16-mixed, bf16-true or 64-true.")
    ] = "32-true",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write logs for it, too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while it lasts.")] = False,
) -> None:
    """Train a translator on sentence pairs, or go on with one.

    Without --data it learns the embedded phrasebook, Chinese to English. Stop it at any moment, by Ctrl-C or harder:
    the same command goes on, and comes to the same end.
    """
    numbers, named = read_columns(columns), read_two("--keys", keys)
    kinds = [part.strip() for part in tokens.split(",")]
    if len(kinds) > 2:
        raise typer.BadParameter(f"--tokens must be one kind, or two with a comma between, got {tokens!r}")
    changes = dict(_read_change(text) for text in set_ or [])

    from regard.tasks.corpus import Corpus
    from regard.tasks.recipe import Machine
    from regard.tasks.translate import Job, train_translator

    corpus = Corpus(
        tuple(data or Corpus.data), tuple(valid or ()), columns=numbers, keys=named, swap=swap, member=member,
        held_out=held_out, limit=limit,
    )  # fmt: skip
    if average is None and strategy == "fsdp":
        # an average would need all of the weights in one place
        average = 0.0
    recipe: Maybe = {
        "epochs": epochs, "max_steps": max_steps, "lr": lr, "warmup": warmup, "schedule": schedule, "clip": clip,
        "weight_decay": weight_decay, "accumulate": accumulate, "average": average, "patience": patience,
        "validate_every": validate_every, "save_every": save_every, "seed": seed,
    }  # fmt: skip
    job = Job.default(
        model, recipe=_drop_none(recipe), preset=preset, changes=changes, corpus=corpus,
        source_tokens=kinds[0], target_tokens=kinds[-1], vocab_size=vocab_size, min_count=min_count,
        lowercase=lowercase, form=form, is_shared=shared, joiner=joiner, max_tokens=max_tokens, max_length=max_length,
        batch_size=batch_size if batch_size or max_tokens else 64, metric=metric, label_smoothing=label_smoothing,
    )  # fmt: skip
    machine = Machine(accelerator, devices, strategy, num_nodes, precision)
    with hush():
        standing = train_translator(job, str(out), machine, is_shown=not quiet, logs=tensorboard)
    raise typer.Exit(close(standing, out, is_shown=not quiet))


@contextmanager
def hush() -> Iterator[None]:
    """Keep back what lightning and torch say of themselves: it is for whoever programs them. Errors are errors."""
    import logging
    import warnings

    # the import sets the levels
    import lightning.fabric  # noqa: F401

    # its rooms write into one another's
    loggers = [logging.getLogger(name) for name in ("lightning", "lightning.fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # python -W asks for them
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def close(standing: Any, out: Path, *, is_shown: bool) -> int:
    """Say how a run ended and what can be done now; the status to exit with."""
    import signal

    from torch import distributed

    # of several processes one speaks
    is_first = not (distributed.is_available() and distributed.is_initialized() and distributed.get_rank())
    where = f"{out}: step {standing.step}, {standing.seconds:.0f} s of training"
    if standing.ended.startswith("SIG"):
        if is_first:
            print(f"Stopped and saved. {where}. The same command goes on.", file=sys.stderr)
        return 128 + signal.Signals[standing.ended]
    if is_shown and is_first:
        why = "no better for long enough" if standing.ended == "patience" else "all steps done"
        print(f"Done ({why}). {where}, best {standing.best:.4g} at step {standing.best_step}.", file=sys.stderr)
        use = f'{name_program()} translate {out} "a sentence"'
        print(f"Curves: {out / 'curves.png'}. Use it: {use}", file=sys.stderr)
    return 0


def _read_change(text: str) -> tuple[str, Any]:
    """KEY=VALUE as a setting: a number, true, false, null or a word."""
    import json

    key, sign, value = text.partition("=")
    if not sign or not key:
        raise typer.BadParameter(f"--set must be KEY=VALUE, got {text!r}")
    try:
        return key.strip(), json.loads(value)
    except (ValueError, RecursionError):
        return key.strip(), value.strip()


def _drop_none(entries: Maybe) -> Maybe:
    return {name: value for name, value in entries.items() if value is not None}
