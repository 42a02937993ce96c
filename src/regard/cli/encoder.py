"""The options of tasks that train an encoder: its texts, what it is made of and how it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from regard.cli.options import Some, drop_none, read_changes
from regard.cli.training import HeldOut, Limit, Valid

# what a model that learned before decides
DECIDED = ("preset", "tokens", "vocab_size", "min_count", "lowercase", "form", "letters")

Model = Annotated[str, typer.Option(metavar="NAME", help="attention, gru or cnn.")]
Metric = Annotated[str | None, Some("NAME", "Which weights are best by: loss, accuracy or f1.  [default: accuracy]")]


@dataclass(frozen=True)
class Texts:
    """What is learned from."""

    data: Annotated[
        list[str] | None, Some("FILE", "What to learn from; repeat for more.  [default: the phrasebook]")
    ] = None
    valid: Valid = None
    held_out: HeldOut = None
    limit: Limit = None

    @property
    def settings(self) -> dict[str, Any]:
        """What was given of a corpus."""
        found = {"held_out": self.held_out, "limit": self.limit, "valid": tuple(self.valid or ())}
        return found | ({"data": tuple(self.data)} if self.data else {})


@dataclass(frozen=True)
class Encoding:
    """How large a model is and how it reads; what is not given is left to the task."""

    preset: Annotated[str | None, Some("NAME", "Its size: tiny, small or base.  [default: tiny]")] = None
    set_: Annotated[
        list[str] | None, Some("KEY=VALUE", "Change a setting of the model, as num_hiddens=512; repeat.", "--set")
    ] = None
    start: Annotated[
        str | None,
        Some("RUN", "Begin from a run of pretrain, or hf:FOLDER with a BERT, and read as it does.", "--from"),
    ] = None
    tokens: Annotated[
        str | None, Some("KIND", "auto, bpe, words, spaces or characters.  [default: auto, by the text]")
    ] = None
    vocab_size: Annotated[int | None, Some("N", "Most tokens of the vocabulary.  [default: by the task]")] = None
    min_count: Annotated[int | None, Some("N", "Rarer tokens are not learned.  [default: 1]", min=1)] = None
    lowercase: Annotated[
        bool | None,
        Some(None, "Learn from text in lower case.  [default: by the task]", "--lowercase/--keep-case"),
    ] = None
    form: Annotated[str | None, Some("FORM", "Unicode: NFC, or NFKC to fold widths.  [default: NFC]")] = None
    letters: Annotated[
        bool | None,
        Some(None, "Read words by their letters, too.  [default: by the task]", "--letters/--no-letters"),
    ] = None
    batch_size: Annotated[
        int | None, Some("N", "Texts in a batch.  [default: by the task, or as --max-tokens fits]", min=1)
    ] = None
    max_tokens: Annotated[int | None, Some("N", "Places in a batch, padding counted.", min=1)] = None
    max_length: Annotated[int | None, Some("N", "Most tokens of a text.  [default: by the task]", min=1)] = None
    label_smoothing: Annotated[float | None, Some("X", "Of the labels, in training.  [default: by the task]")] = None

    def read(self, **changes: Any) -> dict[str, Any]:
        """What was given of a job; `changes` are settings of the model that have an option of their own."""
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
        return drop_none(found) | {"changes": drop_none(changes) | read_changes(self.set_)}
