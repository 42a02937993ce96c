"""Options of training an encoder: its size, tokenizer, batches, and what it starts from (fine-tuning)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from regard.cli.options.spread import Some, drop_none, read_changes
from regard.cli.options.training import Changes

# options that a pretrained encoder decides
DECIDED = ("preset", "tokens", "vocab_size", "min_count", "lowercase", "form", "letters")

Model = Annotated[
    str, typer.Option(metavar="NAME", help="Architecture: attention (a Transformer encoder), gru or cnn.")
]
Window = Annotated[
    str | None,
    Some(
        "N[,M]",
        "Window of self-attention (local attention): N positions on either side, or N back and M ahead; attention only."
        "  [default: all of them]",
    ),
]
Metric = Annotated[
    str | None,
    Some("NAME", "Validation metric that selects the best weights: loss, accuracy or f1 (macro).  [default: accuracy]"),
]


@dataclass(frozen=True)
class Encoding:
    """Options of the model's size, its tokenizer and its batches; what is not given is left to the task."""

    preset: Annotated[str | None, Some("NAME", "Size of the model: tiny, small or base.  [default: tiny]")] = None
    set_: Changes = None
    start: Annotated[
        str | None,
        Some(
            "RUN",
            "Fine-tune a trained encoder, with its tokenizer: a run of train pretrain (or tag, classify, summarize), or"
            " hf:FOLDER with a BERT.  [default: random weights]",
            "--from",
        ),
    ] = None
    tokens: Annotated[
        str | None,
        Some(
            "KIND",
            "Tokenizer: bpe, words, spaces (split at whitespace), characters, or auto ({tokens}).  [default: auto]",
        ),
    ] = None
    vocab_size: Annotated[int | None, Some("N", "Maximum vocabulary size, in tokens.  [default: {vocab_size}]")] = None
    min_count: Annotated[
        int | None,
        Some("N", "Minimum frequency of a token; rarer ones are not in the vocabulary.  [default: 1]", min=1),
    ] = None
    lowercase: Annotated[
        bool | None,
        Some(None, "Lower-case all text, or keep its case.  [default: {lowercase}]", "--lowercase/--keep-case"),
    ] = None
    form: Annotated[
        str | None, Some("FORM", "Unicode normal form: NFC, or NFKC, which folds full-width forms.  [default: NFC]")
    ] = None
    letters: Annotated[
        bool | None,
        Some(None, "Embed each word by its characters, too.  [default: {letters}]", "--letters/--no-letters"),
    ] = None
    window: Window = None
    batch_size: Annotated[
        int | None, Some("N", "Texts per batch.  [default: from the size of the data and the model]", min=1)
    ] = None
    max_tokens: Annotated[
        int | None, Some("N", "Maximum tokens per batch, padding included.  [default: no limit]", min=1)
    ] = None
    max_length: Annotated[
        int | None, Some("N", "Maximum tokens per text: {longer}.  [default: {max_length}]", min=1)
    ] = None
    label_smoothing: Annotated[
        float | None, Some("X", "Label smoothing of the training loss, in [0, 1).  [default: {label_smoothing}]")
    ] = None

    def read(self, **changes: Any) -> dict[str, Any]:
        """The settings of a job that were given; `changes` are settings of the model with an option of their own."""
        if self.start is not None:
            for name in DECIDED:
                if getattr(self, name) is not None:
                    option = name.replace("_", "-")
                    raise typer.BadParameter(f"--{option} is decided by what --from names: leave it out")
        found = {
            "preset": self.preset, "start": self.start, "tokens": self.tokens, "vocab_size": self.vocab_size,
            "min_count": self.min_count, "lowercase": self.lowercase, "form": self.form,
            "has_letters": self.letters, "batch_size": self.batch_size, "max_tokens": self.max_tokens,
            "max_length": self.max_length, "label_smoothing": self.label_smoothing,
        }  # fmt: skip
        changes = drop_none({**changes, "window": read_window(self.window)})
        return drop_none(found) | {"changes": changes | read_changes(self.set_)}


def read_window(given: str | None) -> int | list[int] | None:
    """Parse the reach of windowed self-attention: one number for both sides, or one for each."""
    parts = [] if given is None else [part.strip() for part in given.split(",")]
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(
            f"--window must be a number, or two with a comma between, as 16 or 16,4, got {given!r}"
        )
    numbers = [int(part) for part in parts]
    return numbers if len(numbers) == 2 else next(iter(numbers), None)
