"""Translation: from sentence pairs to a trained translator in a folder."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.data.batches import Batch, Batches
from regard.data.pairs import Pair
from regard.data.split import Split
from regard.data.tokens import PAD, Tokenizer, train_tokenizer
from regard.models import seq2seq, transformer
from regard.models.files import name_fault
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.tasks.corpus import PHRASEBOOK, Corpus
from regard.tasks.evaluate import choose_cut, is_unspaced, score
from regard.tasks.fit import Standing
from regard.tasks.folder import RunFolder
from regard.tasks.job import check_changes
from regard.tasks.recipe import Machine, Recipe, holds_parts
from regard.tasks.run import Learning, digest_data, train_run
from regard.tasks.translator import SOURCE_FILE, TARGET_FILE, Translator

if TYPE_CHECKING:
    from lightning.fabric import Fabric

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
# whether more is better, by what validation may decide by
METRICS = {"loss": False, "bleu": True, "exact": True}
# so many sentences of the validation are translated, where their translations decide
ASKED = 1000
# settings of a model that its tokenizers decide
FIXED = ("src_vocab_size", "tgt_vocab_size", "vocab_size", "target_vocab_size", "pad_id")


@dataclass(frozen=True)
class Job:
    """All that decides what a translator learns; `dataclasses.asdict` of it is JSON.

    >>> Job.default("transformer", label_smoothing=0.2).recipe.schedule
    'inverse-sqrt'

    `model` is "bahdanau" or "transformer", `preset` one of theirs and `changes` what is to differ from it. Tokens are
    kinds of `train_tokenizer`; "auto" takes characters for scripts without spaces, words for the phrasebook and BPE for
    the rest. `is_shared` makes one tokenizer of both sides; where None, a transformer shares BPE. `joiner` marks cuts
    within words in text that comes with them, as "@@ ". `metric` decides which weights are kept: the validation's
    "loss", "bleu", or "exact", the percentage of sentences that are right to the letter.
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

    task: ClassVar[str] = "translate"

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

    @classmethod
    def default(cls, model: str = "bahdanau", *, recipe: dict[str, Any] | None = None, **changes: Any) -> Self:
        """The recipe that suits the model, with what is to differ."""
        made = Recipe(**{**RECIPES.get(model, {}), **(recipe or {})})
        return cls(model=model, recipe=made, **changes)


class TranslateTask(Learning):
    """Pairs, a model and tokenizers as `fit` wants them."""

    def __init__(self, job: Job, translator: Translator, parts: Split) -> None:
        super().__init__(translator.model)
        self.job, self.translator = job, translator
        self.metric, self.more_is_better = job.metric, METRICS[job.metric]
        self.asked = parts.valid[:ASKED]
        self.train, self.valid = (self._encode(part) for part in (parts.train, parts.valid))
        self._digest = digest_data(self.train, self.valid)
        # built now, so that what does not fit is said before anything is written
        batches = self.batches(0, 1)
        dropped, self.longest = batches.dropped, batches.longest
        if dropped:
            self.notes = [f"{dropped} of {len(self.train)} pairs are too long for max_length or max_tokens: left out."]
        self._batch(self.valid, 0, 1)

    def _encode(self, pairs: Sequence[Pair]) -> list[tuple[list[int], list[int]]]:
        sides = zip(*pairs, strict=True)
        tokenizers = self.translator.source_tokenizer, self.translator.target_tokenizer
        sources, targets = (tokenizer.encode_all(side) for tokenizer, side in zip(tokenizers, sides, strict=True))
        return list(zip(sources, targets, strict=True))

    def _batch(self, pairs: Any, rank: int, world_size: int, **options: Any) -> Batches:
        job = self.job
        return Batches(
            pairs, batch_size=job.batch_size, max_tokens=job.max_tokens, rank=rank, world_size=world_size, **options
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the run, the data itself by its digest."""
        has_own = self.translator.target_tokenizer is not self.translator.source_tokenizer
        return {"task": self.job.task, **asdict(self.job), "data_digest": self._digest, "has_target_tokenizer": has_own}

    def write_files(self, folder: RunFolder) -> None:
        source, target = self.translator.source_tokenizer, self.translator.target_tokenizer
        source.save(folder.path / SOURCE_FILE)
        # one that was left by a start with other settings would be read as this run's
        (folder.path / TARGET_FILE).unlink(missing_ok=True)
        if target is not source:
            target.save(folder.path / TARGET_FILE)

    def batches(self, rank: int, world_size: int) -> Batches:
        return self._batch(self.train, rank, world_size, max_length=self.job.max_length, seed=self.job.recipe.seed)

    def count(self, batch: Batch) -> int:
        return int(batch.target_lengths.sum())

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        return self._compare(model, batch, self.job.label_smoothing)

    def _compare(self, model: nn.Module, batch: Batch, label_smoothing: float) -> Tensor:
        logits = model(batch.source, batch.source_lengths, batch.inputs).flatten(0, 1)
        return functional.cross_entropy(
            logits, batch.outputs.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=label_smoothing
        )

    def validate(self, model: nn.Module, fabric: Fabric) -> dict[str, float]:
        batches = self._batch(self.valid, fabric.global_rank, fabric.world_size, shuffle=False)
        sums = torch.zeros(2, dtype=torch.float64)
        for batch in batches.walk():
            loss = float(self._compare(model, batch.to(fabric.device), 0.0))
            sums += torch.tensor([loss, self.count(batch)])
        total, count = fabric.all_reduce(sums.to(fabric.device), reduce_op="sum").tolist()
        found = {"loss": total / count}
        if self.metric != "loss":
            if holds_parts(fabric):
                raise RegardError(f"metric must be 'loss' where the weights are in parts, got {self.metric!r}.")
            speaker = copy.copy(self.translator)
            speaker.model = cast(Any, getattr(model, "module", model))
            said = speaker.translate([source for source, _ in self.asked], beam=1, batch_size=256)
            references = [speaker.join(target) for _, target in self.asked]
            cut = choose_cut(references, self.job.joiner)
            scores = score([x.text for x in said], references, lowercase=self.job.lowercase, tokenize=cut)
            found[self.metric] = scores.bleu if self.metric == "bleu" else 100 * scores.exact / scores.count
        return found


def train_translator(
    job: Job, path: str, machine: Machine | None = None, *, is_shown: bool = True, logs: bool = False
) -> Standing:
    """Train a translator in a folder, or go on with the one that is there."""

    def prepare(folder: RunFolder) -> TranslateTask:
        parts = job.corpus.part()
        source, target = load_tokenizers(folder) if folder.is_begun() else train_tokenizers(job, parts.train)
        torch.manual_seed(job.recipe.seed)
        return TranslateTask(job, Translator(build_model(job, source, target), source, target, job.joiner), parts)

    return train_run(path, prepare, job.recipe, machine, is_shown=is_shown, logs=logs)


def build_model(job: Job, source: Tokenizer, target: Tokenizer) -> Seq2Seq | Transformer:
    """A new model for these vocabularies."""
    sizes, is_gru = (source.vocab_size, target.vocab_size), job.model == "bahdanau"
    check_changes(job.model, seq2seq.Config if is_gru else transformer.Config, job.changes, FIXED)
    try:
        if is_gru:
            return Seq2Seq.from_config(seq2seq.Config.preset(job.preset, *sizes, **job.changes))
        other = None if source is target else sizes[1]
        return Transformer(transformer.Config.preset(job.preset, sizes[0], target_vocab_size=other, **job.changes))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:100]
        raise RegardError(f"{job.model} cannot be made of these settings ({reason}): make it smaller.") from None


def train_tokenizers(job: Job, pairs: Sequence[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's, made from the pairs; the same one twice where it is shared."""
    sides = [list(side) for side in zip(*pairs, strict=True)]
    kinds = [
        _choose_kind(kind, job, side) for kind, side in zip((job.source_tokens, job.target_tokens), sides, strict=True)
    ]
    options: dict[str, Any] = {
        "vocab_size": job.vocab_size, "lowercase": job.lowercase, "form": job.form, "min_count": job.min_count,
    }  # fmt: skip
    is_shared = job.is_shared
    if is_shared is None:
        is_shared = job.model == "transformer" and kinds[0] == kinds[1] == "bpe"
    if is_shared:
        if kinds[0] != kinds[1]:
            raise RegardError(f"a shared tokenizer needs one kind for both sides, got {kinds[0]!r} and {kinds[1]!r}.")
        made = train_tokenizer([*sides[0], *sides[1]], kinds[0], **options)  # type: ignore[arg-type]
        return made, made
    first, second = (train_tokenizer(side, kind, **options) for side, kind in zip(sides, kinds, strict=True))  # type: ignore[arg-type]
    return first, second


def load_tokenizers(folder: RunFolder) -> tuple[Tokenizer, Tokenizer]:
    """Those that a run began with."""
    source, file = Tokenizer.load(folder.path / SOURCE_FILE), folder.path / TARGET_FILE
    has_own = folder.read_settings().get("has_target_tokenizer", file.exists())
    if has_own and not file.exists():
        raise name_fault(file, "is not there, which this run began with", "restore it, or name a new folder")
    return source, Tokenizer.load(file) if has_own else source


def _choose_kind(kind: str, job: Job, texts: Sequence[str]) -> str:
    if kind != "auto":
        return kind
    if is_unspaced(texts):
        return "characters"
    return "words" if job.corpus.data == (PHRASEBOOK,) else "bpe"
