"""Settings of training a translator: model, tokenizers, data and recipe, all but the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.models import seq2seq_config, transformer_config
from regard.models.encoder_config import UNK
from regard.tasks.reading.corpus import TextJob
from regard.tasks.reading.pairs import PairCorpus
from regard.tasks.training.job import check_changes

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
FIXED = (
    "src_vocab_size", "tgt_vocab_size", "vocab_size", "target_vocab_size", "pad_id", "inputs", "input_size",
)  # fmt: skip


@dataclass(frozen=True)
class TranslateJob(TextJob):
    """All settings that decide how a translator is trained; `dataclasses.asdict` of it is JSON.

    >>> TranslateJob.default("transformer", label_smoothing=0.2).recipe.schedule
    'inverse-sqrt'

    `model` is "bahdanau" or "transformer", `preset` one of theirs and `changes` what is to differ from it. Tokens are
    kinds of `train_tokenizer`; "auto" takes characters for scripts without spaces, words for the phrasebook and BPE for
    the rest. `is_shared` makes one tokenizer of both sides; where None, a transformer shares BPE. `joiner` marks cuts
    within words in text that comes with them, as "@@ ". `metric` decides which weights are kept: the validation's
    "loss", "bleu", or "exact", the percentage of sentences that are right to the letter.
    """

    model: str = "bahdanau"
    corpus: PairCorpus = field(default_factory=PairCorpus)
    source_tokens: str = "auto"
    target_tokens: str = "auto"
    vocab_size: int = 8000
    is_shared: bool | None = None
    joiner: str | None = None
    batch_size: int | None = 64
    max_length: int | None = 256
    label_smoothing: float = 0.1

    task: ClassVar[str] = "translate"
    trainer: ClassVar[str] = "regard.tasks.text.translate:prepare_translator"
    models: ClassVar[tuple[str, ...]] = ("bahdanau", "transformer")
    metrics: ClassVar[Mapping[str, bool]] = {"loss": False, "bleu": True, "exact": True}
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = RECIPES
    # from so few that words are met a dozen times, it takes thousands of steps to tell which word means which
    least_steps: ClassVar[int] = 300

    def configure(self) -> tuple[Any, set[str]]:
        kind: Any = seq2seq_config.Config if self.model == "bahdanau" else transformer_config.Config
        changes = check_changes(self.model, kind, self.changes, FIXED)
        # sizes of vocabularies are for the data to say
        sizes = (UNK, UNK) if kind is seq2seq_config.Config else (UNK,)
        return kind.preset(self.preset, *sizes, **changes), set(FIXED)
