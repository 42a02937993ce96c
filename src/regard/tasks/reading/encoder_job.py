"""Settings of training an encoder: model, tokenizer, data and recipe, all but the hardware."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from regard.core import RegardError
from regard.data.wordpiece import WordPiece, open_tokenizer
from regard.models.encoder_config import TRUNK, UNK, Config
from regard.models.layout import PREFIX
from regard.tasks.reading.corpus import TextExamples, TextJob
from regard.tasks.reading.vocabulary import TOKENS_FILE, Lexicon
from regard.tasks.training.examples import Examples
from regard.tasks.training.job import check_changes

if TYPE_CHECKING:
    from regard.models.encoder import Encoder

MODELS = ("attention", "gru", "cnn")
# small embeddings that are not scaled, and rotary positions: what suits few examples, found by trial
SMALL: dict[str, Any] = {"scales_embedding": False, "start_std": 0.1}
TURNED: dict[str, Any] = {**SMALL, "position": "rotary", "attention_dropout": 0.1}
# settings of a model that its data decide
FIXED = ("vocab_size", "labels", "head", "kind", "num_characters", "pad_id", "inputs", "input_size")


def make_recipes(**own: Any) -> dict[str, dict[str, Any]]:
    """A recipe for every model, the same for all, and the usual one for fine-tuning a BERT.

    >>> make_recipes(warmup=100)["gru"]
    {'lr': 0.001, 'schedule': 'cosine', 'warmup': 100}
    """
    bert = {"lr": 5e-5, "warmup": 100, "schedule": "linear", "epochs": 4}
    return {name: {"lr": 1e-3, "schedule": "cosine", **own} for name in MODELS} | {"bert": bert}


def make_styles(**drops: Any) -> dict[str, dict[str, Any]]:
    """Settings of every model for few examples, with these dropout rates.

    >>> make_styles(dropout=0.3)["cnn"]
    {'scales_embedding': False, 'start_std': 0.1, 'dropout': 0.3, 'norm_first': True}
    """
    small = {**SMALL, **drops}
    return {"attention": {**TURNED, **drops}, "gru": small, "cnn": {**small, "norm_first": True}}


@dataclass(frozen=True)
class EncoderJob(TextJob):
    """All settings that decide how an encoder is trained; `dataclasses.asdict` of it is JSON.

    `model` is "attention", "gru" or "cnn", `preset` a size and `changes` what is to differ from it. `start` is a folder
    to begin from: a run of `pretrain`, or hf:FOLDER of a BERT, whose tokenizer and sizes are then taken over. Tokens
    are kinds of `train_tokenizer`, or "auto". With `has_letters` words are also read by how they are written; None does
    so where tokens are words. `metric` decides which weights are kept: the validation's "loss", "accuracy" or "f1".
    """

    model: str = "attention"
    start: str | None = None
    corpus: Examples = field(default_factory=TextExamples)
    tokens: str = "auto"
    has_letters: bool | None = None
    metric: str = "accuracy"

    task: ClassVar[str] = "label"
    trainer: ClassVar[str] = "regard.tasks.reading.labelling:prepare_labels"
    models: ClassVar[tuple[str, ...]] = MODELS
    metrics: ClassVar[Mapping[str, bool]] = {"loss": False, "accuracy": True, "f1": True}
    head: ClassVar[str] = "tags"
    # whether an example's text comes as words
    is_worded: ClassVar[bool] = False
    # what suits a model of its own settings, as `recipes` does; "bert" is for one that others taught before
    styles: ClassVar[Mapping[str, dict[str, Any]]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start is not None and self.model != "attention":
            raise RegardError(
                f"model must be 'attention' where there is a start, which decides it, got {self.model!r}."
            )

    @classmethod
    def default(cls, model: str | None = None, *, recipe: dict[str, Any] | None = None, **changes: Any) -> Self:
        style = cls.styles.get(cls.name_recipe(model or cls.model, changes), {})
        if changes.get("start"):
            # of a run to begin from, all but what is dropped in training is decided
            style = {key: x for key, x in style.items() if key.endswith("dropout")}
        changes["changes"] = {**style, **changes.get("changes", {})}
        return super().default(model, recipe=recipe, **changes)

    @classmethod
    def name_recipe(cls, model: str, changes: Mapping[str, Any]) -> str:
        return "bert" if _is_bert(changes.get("start") or "") else model

    @property
    def is_framed(self) -> bool:
        """Whether every text begins with <bos>."""
        return self.changes.get("pooling") == "first"

    def choose_kind(self, texts: Sequence[Any]) -> str:
        """The kind of tokenizer for these texts, where the job leaves it open."""
        raise NotImplementedError

    def reads_letters(self, texts: Sequence[Any]) -> bool:
        """Whether words of these texts are also read by their characters."""
        if self.has_letters is not None:
            return self.has_letters
        return (self.choose_kind(texts) if self.tokens == "auto" else self.tokens) in ("words", "spaces")

    def train_lexicon(self, texts: Sequence[Any]) -> Lexicon:
        """A tokenizer trained on these texts."""
        kind = self.choose_kind(texts) if self.tokens == "auto" else self.tokens
        return Lexicon.train(
            texts, kind, has_letters=self.reads_letters(texts), is_framed=self.is_framed, vocab_size=self.vocab_size,
            lowercase=self.lowercase, form=self.form, min_count=self.min_count,
        )  # fmt: skip

    def configure(self) -> tuple[Config, set[str]]:
        changes = check_changes(self.model, Config, self.changes, FIXED)
        fixed, has_next = {*FIXED, "has_next"}, changes.get("has_next", False)
        if not asks_pooler(self.head, has_next):
            fixed.add("has_pooler")
        if self.model != "attention":
            fixed.add("window")
        given: dict[str, Any] = {"head": self.head, "labels": ("a", "b"), **changes}
        if self.start is None:
            # <mask> stands behind <unk>
            return Config.preset(self.preset, UNK + 2, kind=self.model, **given), fixed
        # brings torch
        from regard.tasks.reading.warm_start import open_start

        trunk, lexicon = open_start(self.start)
        if isinstance(lexicon.tokenizer, WordPiece):
            fixed |= {"word_dropout", "token_dropout"}
        return _change(trunk.config, given), {*fixed, *TRUNK}

    def check_settings(self) -> None:
        # a run that begins from another is checked when that is opened
        if self.start is None:
            self.configure()

    def build(self, lexicon: Lexicon, labels: Sequence[str], trunk: Encoder | None = None) -> Encoder:
        """A new model for this vocabulary and these labels, with random weights or those of a pretrained encoder."""
        from regard.models.encoder import Encoder

        changes = check_changes(self.model, Config, self.changes, FIXED)
        # what nothing asks would learn nothing, and processes would wait for its gradient
        if changes.get("has_next") and self.head != "words":
            raise RegardError(
                f"has_next is for pre-training, a model that gives {self.head} never uses it: leave it out."
            )
        if changes.get("has_pooler") and not asks_pooler(self.head, changes.get("has_next", False)):
            raise RegardError(
                f"has_pooler is for classes and has_next, a model of {self.head} never uses it: leave it out."
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
            made = _change(trunk.config, {"head": self.head, "labels": labels, "has_next": False, **changes})
            is_asked = asks_pooler(made.head, made.has_next)
            model = Encoder(replace(made, has_pooler=made.has_pooler and is_asked))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:100]
            raise RegardError(f"{self.model} cannot be made of these settings ({reason}): make it smaller.") from None
        model.adopt(trunk)
        return model


def _change(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with some settings changed, as JSON has them."""
    return Config.from_dict({**asdict(config), **changes})


def _is_bert(start: str) -> bool:
    """Whether a start is a BERT, or a run that began from one; whoever opens it says what is wrong with it."""
    if not start or start.startswith(PREFIX):
        return bool(start)
    try:
        return isinstance(open_tokenizer(pathlib.Path(os.path.expanduser(start)) / TOKENS_FILE), WordPiece)
    except RegardError:
        return False


def asks_pooler(head: str, has_next: bool) -> bool:
    """Whether a model with this head uses a pooler."""
    return head == "classes" or has_next
