"""`regard train translate`: train a translator on sentence pairs."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from regard.cli.options.encoder import Window, read_window
from regard.cli.options.examples import PairTexts
from regard.cli.options.spread import Some, drop_none, read_changes, spread
from regard.cli.options.training import Changes, Out, Preset, Training

EXAMPLES = """\
  regard train translate --out runs/demo
  regard train translate --data cmn.txt --swap --model transformer --preset small --out runs/zh
  regard train translate --data train.en --data train.de --valid val.en --valid val.de --out runs/de
  torchrun --nproc-per-node 2 -m regard train translate --data pairs.tsv --out runs/two"""

# defaults that a test compares with the job's
SAID = {
    "epochs": "10", "lr": "bahdanau 0.0015, transformer 0.001", "schedule": "bahdanau cosine, transformer inverse-sqrt",
    "weight_decay": "bahdanau 0, transformer 0.0001", "average": "bahdanau 0.995, transformer 0.998",
}  # fmt: skip


@partial(spread, said=SAID)
def translate(
    *,
    out: Out = None,
    pairs: PairTexts,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Architecture: bahdanau (GRUs with additive attention) or transformer.")
    ] = "bahdanau",
    preset: Preset = "tiny",
    set_: Changes = None,
    window: Window = None,
    tokens: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Tokenizer: bpe, words, spaces (split at whitespace), characters, or auto (characters for Chinese and"
            " the like, words for the phrasebook, else bpe); as SOURCE,TARGET, one for each side.",
        ),
    ] = "auto",
    vocab_size: Annotated[int, typer.Option(metavar="N", help="Maximum size of a vocabulary, in tokens.")] = 8000,
    min_count: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Minimum frequency of a token; rarer ones are not in the vocabulary."),
    ] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lower-case all text.")] = False,
    form: Annotated[
        str, typer.Option(metavar="FORM", help="Unicode normal form: NFC, or NFKC, which folds full-width forms.")
    ] = "NFC",
    shared: Annotated[
        bool | None,
        Some(
            None,
            "One vocabulary for source and target, or one each.  [default: shared for a transformer with bpe]",
            "--shared/--apart",
        ),
    ] = None,
    joiner: Annotated[
        str | None,
        Some("MARK", "Mark of subwords in data that is split already, as '@@ '; removed from output.  [default: none]"),
    ] = None,
    batch_size: Annotated[
        int | None, Some("N", "Sentence pairs per batch.  [default: from the size of the data and the model]", min=1)
    ] = None,
    max_tokens: Annotated[
        int | None,
        Some("N", "Maximum tokens per batch and side, padding included.  [default: no limit]", min=1),
    ] = None,
    max_length: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Maximum tokens per sentence: longer pairs are not trained on."),
    ] = 256,
    label_smoothing: Annotated[
        float, typer.Option(metavar="X", help="Label smoothing of the training loss, in [0, 1).")
    ] = 0.1,
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Validation metric that selects the best weights: loss, bleu or exact (percentage of exact matches).",
        ),
    ] = "loss",
    training: Training,
) -> None:
    """Train a translator on sentence pairs, or resume a run.

    Without --data it learns the built-in phrasebook, Chinese to English. Stop it at any moment, by Ctrl-C or harder:
    the same command resumes it, with the same result.
    """
    found, kinds = pairs.settings, [part.strip() for part in tokens.split(",")]
    if len(kinds) > 2:
        raise typer.BadParameter(f"--tokens must be one kind, or two with a comma between, got {tokens!r}")
    changes = drop_none({"window": read_window(window)}) | read_changes(set_)

    from regard.tasks.reading.pairs import PairCorpus
    from regard.tasks.text.translate_job import TranslateJob

    job = TranslateJob.default(
        model, recipe=training.recipe, preset=preset, changes=changes, corpus=PairCorpus(**found),
        source_tokens=kinds[0], target_tokens=kinds[-1], vocab_size=vocab_size, min_count=min_count,
        lowercase=lowercase, form=form, is_shared=shared, joiner=joiner, max_tokens=max_tokens, max_length=max_length,
        metric=metric, label_smoothing=label_smoothing, **drop_none({"batch_size": batch_size}),
    )  # fmt: skip
    training.run(job, out)
