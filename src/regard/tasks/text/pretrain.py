"""Pre-training an encoder on plain text: masked language modelling and next-sentence prediction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.data.rows import NO_LABEL, Labelled, Masked, Rows
from regard.data.split import Split
from regard.models.encoder import Encoder
from regard.tasks.metrics.verdict import judge
from regard.tasks.reading.documents import Read, read_documents
from regard.tasks.reading.vocabulary import LETTERS_FILE, TOKENS_FILE, Lexicon
from regard.tasks.reading.warm_start import prepare_reading
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.run import Learning, describe_parts

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from regard.tasks.text.pretrain_job import PretrainJob


class PretrainEncoder(Encoder):
    """An `Encoder` for pre-training: logits of masked words at chosen positions, and of next-sentence prediction."""

    def forward(  # type: ignore[override]
        self, ids: Tensor, valid_lens: Tensor, *, chosen: Tensor, spelling: Tensor | None, types: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of words, (positions, vocab), and with has_next of the next sentence, (batch, 2)."""
        hidden = self.encode(ids, valid_lens, spelling=spelling, types=types)
        follows = self.predict_next(hidden, valid_lens) if self.config.has_next else None
        return self.predict_words(hidden[chosen]), follows


class PretrainTask(Learning):
    """Pre-training for the training loop: an encoder and plain text."""

    unit = "tokens"
    files = (TOKENS_FILE, LETTERS_FILE)

    def __init__(
        self, job: PretrainJob, model: PretrainEncoder, lexicon: Lexicon, train: Sequence[Sequence[str]],
        valid: Sequence[Sequence[str]], test: Sequence[Sequence[str]] = (),
    ) -> None:  # fmt: skip
        self.lexicon = lexicon
        positions = model.config.max_len if model.config.position == "learned" else None
        limit = min((x for x in (job.max_length, job.max_tokens, positions) if x is not None), default=None)
        # what a validation asks is the same for all seeds: runs compare
        self.train, self.valid = (
            read_documents(lexicon, part, limit, job.recipe.seed if part is train else 0, has_next=job.has_next)
            for part in (train, valid)
        )
        super().__init__(model, job.fit_batches(len(self.train.ids)), (self.train, self.valid))
        self.test_digest = job.corpus.digest(test)
        # built now, so that what does not fit is said before anything is written
        self.longest = self.batches(0, 1).longest
        asked = [x for batch in self._ask_batches(0, 1).walk() for x in batch.labels.flatten().tolist()]  # type: ignore[union-attr]
        self._asked = len(known := [x for x in asked if x != NO_LABEL])
        usual = Counter(x for ids in self.train.ids for x in ids if x not in lexicon.special).most_common(1)
        self.baselines = {"accuracy": 100 * sum(x == usual[0][0] for x in known) / max(len(known), 1)}
        size = f"{sum(map(len, self.train.ids)):,} tokens, of a vocabulary of {lexicon.vocab_size:,}"
        self.notes = [f"{describe_parts((train, valid, test), 'texts')}; {size}."]

    def write_files(self, folder: RunFolder) -> None:
        self.lexicon.save(folder.path)

    def _batch(self, part: Read, rank: int, world_size: int, **options: Any) -> Masked:
        rows = Rows(
            part.ids, letters=part.letters, types=part.types, batch_size=self.job.batch_size,
            max_tokens=self.job.max_tokens, rank=rank, world_size=world_size, **options,
        )  # fmt: skip
        lexicon = self.lexicon
        return Masked(
            rows, mask_id=lexicon.mask_id, vocab_size=lexicon.vocab_size, special=lexicon.special, rate=self.job.rate
        )

    def _ask_batches(self, rank: int, world_size: int) -> Masked:
        return self._batch(self.valid, rank, world_size, shuffle=False, what="validation text")

    def batches(self, rank: int, world_size: int) -> Masked:
        return self._batch(self.train, rank, world_size, seed=self.job.recipe.seed)

    def count(self, batch: Labelled) -> int:
        assert batch.labels is not None
        # a step is a mean, and of a few short texts chance may hide nothing
        return max(1, int((batch.labels != NO_LABEL).sum()))

    def measure(self, model: nn.Module, batch: Labelled) -> Tensor:
        words, wanted, follows, others = self._ask(model, batch, self.train)
        loss = functional.cross_entropy(words, wanted, reduction="sum", label_smoothing=self.job.label_smoothing)
        if follows is not None:
            # a step is the mean over all words that are hidden: both losses count as one each
            loss = loss + functional.cross_entropy(follows, others) * len(wanted)
        return loss

    def _ask(self, model: nn.Module, batch: Labelled, part: Read) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Logits and labels of masked words, logits and labels of next-sentence prediction."""
        assert batch.labels is not None
        chosen = batch.labels != NO_LABEL
        words, follows = model(batch.ids, batch.lengths, chosen=chosen, spelling=batch.spelling, types=batch.types)
        others = torch.tensor([] if part.others is None else [part.others[n] for n in batch.numbers.tolist()])
        return words, batch.labels[chosen], follows, others.to(batch.ids.device)

    def validate(self, model: nn.Module, fabric: Fabric) -> dict[str, float]:
        sums = torch.zeros(6, dtype=torch.float64)
        for batch in self._ask_batches(fabric.global_rank, fabric.world_size).walk():
            words, wanted, follows, others = self._ask(model, batch.to(fabric.device), self.valid)
            sums[:3] += _count_right(words, wanted)
            if follows is not None:
                sums[3:] += _count_right(follows, others)
        loss, right, count, next_loss, next_right, pairs = fabric.all_reduce(
            sums.to(fabric.device), reduce_op="sum"
        ).tolist()
        found = {"loss": loss / count, "perplexity": math.exp(min(loss / count, 700)), "accuracy": 100 * right / count}
        if pairs:
            found["loss"] += next_loss / pairs
            found["next"] = 100 * next_right / pairs
        return found

    def judge(self, folder: RunFolder, device: torch.device, best: Mapping[str, float]) -> list[str]:
        accuracy, baseline = best["valid_accuracy"], self.baselines["accuracy"]
        usual = f"always predicting the most frequent is right for {baseline:.1f} %"
        line = f"Of {self._asked:,} masked words {accuracy:.1f} % are predicted right; {usual}."
        right, share = round(accuracy * self._asked / 100), max(baseline / 100, 1 / self.lexicon.vocab_size)
        return [line, *judge(right, self._asked, share, "words")]


def prepare_encoder(job: PretrainJob, parts: Split, folder: RunFolder) -> PretrainTask:
    """Build the encoder, tokenizer and documents of a pre-training job, ready to be trained in a folder."""
    start, lexicon = prepare_reading(job, folder, [text for texts in parts.train for text in texts])
    torch.manual_seed(job.recipe.seed)
    return PretrainTask(job, job.build(lexicon, trunk=start), lexicon, *parts)


def _count_right(logits: Tensor, wanted: Tensor) -> Tensor:
    """The sum of the cross-entropies, the number of right predictions, and of all."""
    loss, right = functional.cross_entropy(logits, wanted, reduction="sum"), (logits.argmax(-1) == wanted).sum()
    return torch.tensor([float(loss), int(right), len(wanted)], dtype=torch.float64)
