"""What an encoder is to learn: all settings of a run but its machine."""

from __future__ import annotations

import difflib
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from regard.core import RegardError
from regard.data.split import Split
from regard.data.wordpiece import WordPiece, open_tokenizer
from regard.models.layout import PREFIX
from regard.tasks.reading.vocabulary import TOKENS_FILE, Lexicon
from regard.tasks.training.examples import Examples
from regard.tasks.training.plan import Planned, leave_open
from regard.tasks.training.recipe import Recipe

if TYPE_CHECKING:
    from regard.models.encoder import Encoder

MODELS = ("attention", "gru", "cnn")
# whether more is better, by what validation may decide by
METRICS = {"loss": False, "accuracy": True, "f1": True}
# small embeddings that are not scaled, letters and positions by turning: what suits few examples, by trial
SMALL: dict[str, Any] = {"scales_embedding": False, "start_std": 0.1}
TURNED: dict[str, Any] = {**SMALL, "position": "rotary", "attention_dropout": 0.1}
# settings of a model that its data decide
FIXED = ("vocab_size", "labels", "head", "kind", "num_characters", "pad_id")


@dataclass(frozen=True)
class EncoderJob(Planned):
    """All that decides what an encoder learns; `dataclasses.asdict` of it is JSON.

    `model` is "attention", "gru" or "cnn", `preset` a size and `changes` what is to differ from it. `start` is a folder
    to begin from: a run of `pretrain`, or hf:FOLDER of a BERT, whose tokenizer and sizes are then taken over. Tokens
    are kinds of `train_tokenizer`, or "auto". With `has_letters` words are also read by how they are written; None does
    so where tokens are words. `metric` decides which weights are kept: the validation's "loss", "accuracy" or "f1".
    `adapts` names the settings that are made to fit the size of the data when the run begins: see `Planned`.
    """

    model: str = "attention"
    preset: str = "tiny"
    changes: dict[str, Any] = field(default_factory=dict)
    start: str | None = None
    corpus: Examples = field(default_factory=Examples)
    recipe: Recipe = field(default_factory=Recipe)
    tokens: str = "auto"
    vocab_size: int = 20_000
    min_count: int = 1
    lowercase: bool = False
    form: str = "NFC"
    has_letters: bool | None = None
    batch_size: int | None = 32
    max_tokens: int | None = None
    max_length: int | None = 512
    label_smoothing: float = 0.0
    metric: str = "accuracy"
    adapts: tuple[str, ...] = ()

    task: ClassVar[str] = "label"
    trainer: ClassVar[tuple[str, str]] = ("reading.labelling", "train_labels")
    head: ClassVar[str] = "tags"
    # whether an example's text comes as words
    is_worded: ClassVar[bool] = False
    # what suits a model unless told otherwise, by its name; "bert" is for one that others taught before
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {}
    # the same of its own settings
    styles: ClassVar[Mapping[str, dict[str, Any]]] = {}

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise RegardError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}.")
        if self.metric not in METRICS:
            raise RegardError(f"metric must be one of {', '.join(METRICS)}, got {self.metric!r}.")
        for name in ("vocab_size", "min_count", "batch_size", "max_tokens", "max_length"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 2**31:
                raise RegardError(f"{name} must be from 1 to 2**31, got {value}.")
        if not 0 <= self.label_smoothing < 1:
            raise RegardError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}.")
        if self.start is not None and self.model != "attention":
            raise RegardError(
                f"model must be 'attention' where there is a start, which decides it, got {self.model!r}."
            )

    @classmethod
    def default(cls, model: str = "attention", *, recipe: dict[str, Any] | None = None, **changes: Any) -> Self:
        """The recipe and settings that suit the model, with what is to differ; the rest is left to the data."""
        start = changes.get("start") or ""
        name = "bert" if _is_bert(start) else model
        made = Recipe(**{**cls.recipes.get(name, {}), **(recipe or {})})
        # of a run to begin from, all but what is dropped in training is decided
        style = {key: x for key, x in cls.styles.get(name, {}).items() if not start or key.endswith("dropout")}
        style |= changes.pop("changes", {})
        changes.setdefault("adapts", leave_open(recipe or {}, changes))
        if changes.get("max_tokens") is not None:
            changes.setdefault("batch_size", None)
        return cls(model=model, recipe=made, changes=style, **changes)

    @property
    def is_framed(self) -> bool:
        """Whether <bos> stands before every text."""
        return self.changes.get("pooling") == "first"

    def part(self) -> Split:
        """The examples to learn from, to validate by, and for the test."""
        return self.corpus.part()

    def choose_kind(self, texts: Sequence[Any]) -> str:
        """The kind of tokens, where it is left to the text."""
        raise NotImplementedError

    def reads_letters(self, texts: Sequence[Any]) -> bool:
        """Whether words of these texts are read by how they are written, too."""
        if self.has_letters is not None:
            return self.has_letters
        return (self.choose_kind(texts) if self.tokens == "auto" else self.tokens) in ("words", "spaces")

    def train_lexicon(self, texts: Sequence[Any]) -> Lexicon:
        """A new one for these texts."""
        kind = self.choose_kind(texts) if self.tokens == "auto" else self.tokens
        return Lexicon.train(
            texts, kind, has_letters=self.reads_letters(texts), is_framed=self.is_framed, vocab_size=self.vocab_size,
            lowercase=self.lowercase, form=self.form, min_count=self.min_count,
        )  # fmt: skip

    def build(self, lexicon: Lexicon, labels: Sequence[str], trunk: Encoder | None = None) -> Encoder:
        """A new model for this vocabulary and these labels, on the trunk of one that learned before."""
        from regard.models.encoder import Config, Encoder

        changes = check_changes(self.model, Config, self.changes)
        # what nothing asks would learn nothing, and processes would wait for its gradient
        if changes.get("has_next") and self.head != "words":
            raise RegardError(
                f"has_next is for pre-training, a model that gives {self.head} never asks it: leave it out."
            )
        if changes.get("has_pooler") and not asks_pooler(self.head, changes.get("has_next", False)):
            raise RegardError(
                f"has_pooler is for classes and has_next, a model of {self.head} never asks it: leave it out."
            )
        for name in ("word_dropout", "token_dropout"):
            if changes.get(name) and isinstance(lexicon.tokenizer, WordPiece):
                raise RegardError(f"{name} knows the special tokens of regard's tokenizers, not BERT's: leave it out.")
        try:
            if trunk is None:
                options = {"kind": self.model, "num_characters": lexicon.num_characters, "pad_id": lexicon.pad_id}
                config = Config.preset(
                    self.preset, lexicon.vocab_size, head=self.head, labels=tuple(labels), **options, **changes
                )
                return Encoder(config)
            made = replace(trunk.config, head=self.head, labels=tuple(labels), **{"has_next": False, **changes})
            is_asked = asks_pooler(made.head, made.has_next)
            model = Encoder(replace(made, has_pooler=made.has_pooler and is_asked))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:100]
            raise RegardError(f"{self.model} cannot be made of these settings ({reason}): make it smaller.") from None
        model.adopt(trunk)
        return model


def _is_bert(start: str) -> bool:
    """Whether a start is a BERT, or a run that began from one; what is wrong with it, whoever opens it says."""
    if not start or start.startswith(PREFIX):
        return bool(start)
    try:
        return isinstance(open_tokenizer(pathlib.Path(os.path.expanduser(start)) / TOKENS_FILE), WordPiece)
    except RegardError:
        return False


def asks_pooler(head: str, has_next: bool) -> bool:
    """Whether a model of this head has a use for a pooler."""
    return head == "classes" or has_next


def check_changes(
    called: str, kind: type[Any], changes: Mapping[str, Any], fixed: Sequence[str] = FIXED
) -> dict[str, Any]:
    """`changes`, if a model's config has such settings and they are in proportion."""
    known = [x.name for x in fields(kind) if x.name not in fixed]
    for name, value in changes.items():
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name[:40], known, 4, 0.0))
            raise RegardError(f"{called} has no setting {name[:40]!r} to change; it has {near} and others.")
        most = 1000 if "layers" in name else 2**20
        if isinstance(value, int | float) and value > most:
            raise RegardError(f"{name} must be at most {most}, got {value}.")
    return dict(changes)
