"""What a translator is to learn: all settings of a run but its machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from regard.core import RegardError
from regard.data.split import Split
from regard.tasks.reading.pairs import Corpus
from regard.tasks.training.plan import Planned, leave_open
from regard.tasks.training.recipe import Recipe

MODELS = ("bahdanau", "transformer")
# what suits a model unless told otherwise
RECIPES: dict[str, dict[str, Any]] = {
    "bahdanau": {"lr": 1.5e-3, "warmup": 150, "schedule": "cosine", "weight_decay": 0.0, "average": 0.995},
    "transformer": {
        "lr": 1e-3,
        "warmup": 1000,
        "schedule": "inverse-sqrt",
        "beta2": 0.98,
        "weight_decay": 1e-4,
        "average": 0.998,
    },
}
# settings of a model that its tokenizers decide
FIXED = ("src_vocab_size", "tgt_vocab_size", "vocab_size", "target_vocab_size", "pad_id")
# whether more is better, by what validation may decide by
METRICS = {"loss": False, "bleu": True, "exact": True}


@dataclass(frozen=True)
class Job(Planned):
    """All that decides what a translator learns; `dataclasses.asdict` of it is JSON.

    >>> Job.default("transformer", label_smoothing=0.2).recipe.schedule
    'inverse-sqrt'

    `model` is "bahdanau" or "transformer", `preset` one of theirs and `changes` what is to differ from it. Tokens are
    kinds of `train_tokenizer`; "auto" takes characters for scripts without spaces, words for the phrasebook and BPE for
    the rest. `is_shared` makes one tokenizer of both sides; where None, a transformer shares BPE. `joiner` marks cuts
    within words in text that comes with them, as "@@ ". `metric` decides which weights are kept: the validation's
    "loss", "bleu", or "exact", the percentage of sentences that are right to the letter. `adapts` names the
    settings that are made to fit the size of the data when the run begins: see `Planned`.
    """

    model: str = "bahdanau"
    preset: str = "tiny"
    changes: dict[str, Any] = field(default_factory=dict)
    corpus: Corpus = field(default_factory=Corpus)
    recipe: Recipe = field(default_factory=Recipe)
    source_tokens: str = "auto"
    target_tokens: str = "auto"
    vocab_size: int = 8000
    min_count: int = 1
    lowercase: bool = False
    form: str = "NFC"
    is_shared: bool | None = None
    joiner: str | None = None
    batch_size: int | None = 64
    max_tokens: int | None = None
    max_length: int | None = 256
    label_smoothing: float = 0.1
    metric: str = "loss"
    adapts: tuple[str, ...] = ()

    task: ClassVar[str] = "translate"
    trainer: ClassVar[tuple[str, str]] = ("text.translate", "train_translator")
    # from so few that words are met a dozen times, it takes thousands of steps to tell which word means which
    least_steps: ClassVar[int] = 300

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

    def part(self) -> Split:
        """The pairs to learn from, to validate by, and for the test."""
        return self.corpus.part()

    @classmethod
    def default(cls, model: str = "bahdanau", *, recipe: dict[str, Any] | None = None, **changes: Any) -> Self:
        """The recipe that suits the model, with what is to differ; the rest is left to the data."""
        made = Recipe(**{**RECIPES.get(model, {}), **(recipe or {})})
        changes.setdefault("adapts", leave_open(recipe or {}, changes))
        if changes.get("max_tokens") is not None:
            changes.setdefault("batch_size", None)
        return cls(model=model, recipe=made, **changes)
