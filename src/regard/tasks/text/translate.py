"""Translation: training an encoder-decoder on sentence pairs."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.data.batches import Batch, Batches
from regard.data.pairs import Pair
from regard.data.scripts import is_unspaced
from regard.data.split import Split
from regard.data.tokens import EOS, PAD, Tokenizer, train_tokenizer
from regard.models import seq2seq, transformer
from regard.models.files import name_fault
from regard.models.pretrained import load_pretrained
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.tasks.metrics.translation import choose_cut, score
from regard.tasks.metrics.verdict import JUDGED, judge_answers
from regard.tasks.reading.corpus import PHRASEBOOK
from regard.tasks.text.translate_job import FIXED, TranslateJob
from regard.tasks.text.translator import SOURCE_FILE, TARGET_FILE, Translator
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.job import check_changes
from regard.tasks.training.machine import holds_parts
from regard.tasks.training.run import Learning, describe_parts
from regard.views.labels import show_line

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# so many sentences of the validation are translated, where their translations decide
ASKED = 1000


class TranslateTask(Learning):
    """Translation for the training loop: an encoder-decoder, its tokenizers and sentence pairs."""

    unit = "tokens"
    files = (SOURCE_FILE, TARGET_FILE)
    # which tokenizers there are follows from the rest
    free = ("member", "has_target_tokenizer")

    def __init__(self, job: TranslateJob, translator: Translator, parts: Split) -> None:
        self.translator = translator
        self.asked = parts.valid[:ASKED]
        self.train, self.valid = (self._encode(part) for part in (parts.train, parts.valid))
        super().__init__(translator.model, job.fit_batches(len(parts.train)), (self.train, self.valid))
        self.test_digest = job.corpus.digest(parts.test)
        # what chose no weights, where there is some
        self._judged = (parts.test or parts.valid)[:JUDGED]
        # built now, so that what does not fit is said before anything is written
        batches = self.batches(0, 1)
        dropped, self.longest, self.notes = batches.dropped, batches.longest, [self._describe(parts)]
        if dropped:
            self.notes.append(
                f"{dropped} of {len(self.train)} pairs are too long for max_length or max_tokens: left out."
            )
        self._batch(self.valid, 0, 1)

    def _describe(self, parts: Split) -> str:
        """The dataset in a line: columns that were taken the wrong way round show at once."""
        sides = [[len(ids) for ids in side] for side in zip(*self.train, strict=True)]
        mean, longest = (" and ".join(f"{x:,.0f}" for x in map(f, sides)) for f in (statistics.fmean, max))
        first = f"the first: {show_line(parts.train[0][0])[:40]!r} → {show_line(parts.train[0][1])[:40]!r}"
        return f"{describe_parts(parts, 'pairs')}; {mean} tokens on average, {longest} at most; {first}."

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
        has_own = self.translator.target_tokenizer is not self.translator.source_tokenizer
        return {**super().settings, "has_target_tokenizer": has_own}

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
        sums = torch.zeros(2, dtype=torch.float64, device=fabric.device)
        for batch in batches.walk():
            # read at the end: a look at each would make a GPU wait
            sums[0] += self._compare(model, batch.to(fabric.device), 0.0)
            sums[1] += self.count(batch)
        total, count = fabric.all_reduce(sums, reduce_op="sum").tolist()
        found = {"loss": total / count}
        if self.metric != "loss":
            if holds_parts(fabric):
                raise RegardError(f"metric must be 'loss' where the weights are sharded, got {self.metric!r}.")
            speaker = self._speak(getattr(model, "module", model))
            # a GPU takes as long for a step of decoding, however many sentences say a word
            at_once = 256 if fabric.device.type == "cpu" else ASKED
            said = speaker.translate([source for source, _ in self.asked], beam=1, batch_size=at_once)
            references = [speaker.join(target) for _, target in self.asked]
            cut = choose_cut(references, self.job.joiner)
            scores = score([x.text for x in said], references, lowercase=self.job.lowercase, tokenize=cut)
            found[self.metric] = scores.bleu if self.metric == "bleu" else 100 * scores.exact / scores.count
        return found

    def _speak(self, model: Any) -> Translator:
        """The translator with these weights."""
        speaker = copy.copy(self.translator)
        speaker.model = model
        return speaker

    def judge(self, folder: RunFolder, device: torch.device, best: Mapping[str, float]) -> list[str]:
        speaker = self._speak(load_pretrained(folder.path, device, kinds=(type(self.translator.model),)))
        found = speaker.translate([source for source, _ in self._judged], beam=1)
        # by tokens, as the model itself would say the reference
        meant = [speaker.target_tokenizer.encode(target) for _, target in self._judged]
        said = [[token for token in one.target_ids if token != EOS] for one in found]
        return judge_answers(said, meant, "sentences")


def prepare_translator(job: TranslateJob, parts: Split, folder: RunFolder) -> TranslateTask:
    """Build the model, tokenizers and sentence pairs of a translation job, ready to be trained in a folder."""
    source, target = load_tokenizers(folder) if folder.is_begun() else train_tokenizers(job, parts.train)
    torch.manual_seed(job.recipe.seed)
    return TranslateTask(job, Translator(build_model(job, source, target), source, target, job.joiner), parts)


def build_model(job: TranslateJob, source: Tokenizer, target: Tokenizer) -> Seq2Seq | Transformer:
    """A new encoder-decoder for these vocabularies, with random weights."""
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


def train_tokenizers(job: TranslateJob, pairs: Sequence[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """Train the source and the target tokenizer on the pairs; the same one twice where it is shared."""
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
    """Load the tokenizers that a run began with."""
    source, file = Tokenizer.load(folder.path / SOURCE_FILE), folder.path / TARGET_FILE
    has_own = folder.read_settings().get("has_target_tokenizer", file.exists())
    if has_own and not file.exists():
        raise name_fault(file, "is not there, which this run began with", "restore it, or name a new folder")
    return source, Tokenizer.load(file) if has_own else source


def _choose_kind(kind: str, job: TranslateJob, texts: Sequence[str]) -> str:
    if kind != "auto":
        return kind
    if is_unspaced(texts):
        return "characters"
    return "words" if job.corpus.data == (PHRASEBOOK,) else "bpe"
