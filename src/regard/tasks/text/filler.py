"""Masked language modelling with a trained encoder: predicting words for the blanks of a text (fill-mask)."""

from __future__ import annotations

import math
import os
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from regard.core import RegardError
from regard.data.rows import NO_LABEL, Masked, Rows
from regard.data.wordpiece import SPECIAL, WordPiece
from regard.models.encoder import Encoder
from regard.models.layout import PREFIX, read_config
from regard.tasks.metrics.result import Bar, Result, hide, time_answers
from regard.tasks.reading.documents import read_documents
from regard.tasks.reading.predict import open_rows
from regard.tasks.reading.vocabulary import Encoded, Lexicon
from regard.tasks.reading.warm_start import find_limit, limit_length, load_labeller, open_start, pause_training
from regard.tasks.training.device import find_device

BLANK = re.compile(r"_{3,}|<mask>|\[MASK\]")
# stands in a blank while the text is cut: a word for any tokenizer
STAND_IN = "x"


class Guess(NamedTuple):
    """A predicted word, or a token of the tokenizer, and its probability."""

    word: str
    score: float


@dataclass(frozen=True)
class Filled:
    """A text with the best word in each blank; `guesses` has the best candidates for each.

    `unknown` counts the tokens that the model does not know, of `num_tokens` that were read.
    """

    source: str
    text: str
    guesses: tuple[tuple[Guess, ...], ...] = field(repr=False)
    unknown: int = 0
    num_tokens: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True)
class WordScores:
    """Metrics of masked language modelling over `count` words; `next` is the accuracy of next-sentence prediction.

    `baseline` is the accuracy of guessing nothing but the most frequent of them.
    """

    perplexity: float
    accuracy: float
    count: int
    baseline: float
    next: float | None = None


class Filler:
    """A masked language model: an encoder and its tokenizer.

    >>> from regard.models.encoder import Config
    >>> lexicon = Lexicon.train(["the cat sat on the mat"], "words")
    >>> model = Encoder(Config.preset("tiny", lexicon.vocab_size, head="words")).eval()
    >>> found = Filler(model, lexicon).fill("the ___ sat on the ___", top=2)
    >>> len(found.guesses), [len(guesses) for guesses in found.guesses]
    (2, [2, 2])
    """

    def __init__(self, model: Encoder, lexicon: Lexicon, max_length: int | None = None) -> None:
        self.model, self.lexicon, self.max_length = model, lexicon, limit_length(max_length, model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Filler:
        """Load a run of pretrain, or hf:FOLDER with a BERT that has a masked language modelling head."""
        name, place = os.fspath(folder), pathlib.Path(folder)
        if not name.startswith(PREFIX):
            model, lexicon = load_labeller(place, device, "words", "none")
            return cls(model, lexicon, find_limit(place, model))
        model, lexicon = open_start(name)
        if model.config.head != "words":
            raise RegardError(
                f"{name} has no head that predicts masked words: name a BERT for pre-training or masked words."
            )
        return cls(model.to(find_device(device)).eval(), lexicon)

    @torch.no_grad()
    def fill(self, text: str, top: int = 5) -> Filled:
        """Predict the `top` best words for each blank (___, <mask> or [MASK]): one token, with all blanks masked."""
        if top < 1:
            raise RegardError(f"top must be at least 1, got {top}.")
        if not BLANK.search(text):
            raise RegardError(f"the text has no blank to fill ({text!r:.40}): put ___ where a word is to be predicted.")
        encoded, places = self._hide(text)
        (batch,) = open_rows([encoded], batch_size=1).walk()
        batch = batch.to(next(self.model.parameters()).device)
        with pause_training(self.model):
            hidden = self.model.encode(batch.ids, batch.lengths, spelling=batch.spelling)
            logits = self.model.predict_words(hidden[0, places]).float()
        logits[:, self._wordless] = -torch.inf
        # a table may have rows to spare
        logits[:, self.lexicon.tokenizer.vocab_size :] = -torch.inf
        best = logits.softmax(-1).topk(min(top, int(logits[0].isfinite().sum())))
        guesses = []
        for scores, ids in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            words = self.lexicon.tokenizer.list_tokens(ids)
            guesses.append(tuple(Guess(word.strip(), score) for word, score in zip(words, scores, strict=True)))
        chosen = iter([found[0].word.removeprefix("##") for found in guesses])
        said, unknown = BLANK.sub(lambda _: next(chosen), text), encoded.ids.count(self.lexicon.unk_id)
        return Filled(text, said, tuple(guesses), unknown, len(encoded.ids))

    @cached_property
    def _wordless(self) -> list[int]:
        """The ids that are no word: special tokens, and holes in the vocabulary."""
        tokenizer, found = self.lexicon.tokenizer, self.lexicon.special
        if isinstance(tokenizer, WordPiece):
            # what is unknown, and holes in the vocabulary
            names = enumerate(tokenizer.list_tokens(range(tokenizer.vocab_size)))
            found = found | {number for number, token in names if token == SPECIAL[1]}
        return sorted(found)

    def _hide(self, text: str) -> tuple[Encoded, list[int]]:
        """The tokenized text with <mask> in each blank, and the positions of these."""
        pieces = BLANK.split(text)
        blanks, full = [], pieces[0]
        for piece in pieces[1:]:
            blanks.append(len(full))
            full += STAND_IN + piece
        (one,) = self.lexicon.encode_texts([full])
        if self.max_length is not None and len(one.ids) > self.max_length:
            raise RegardError(f"the text has {len(one.ids)} tokens, the model reads {self.max_length}: shorten it.")
        # the frame's tokens stand for nothing of the text
        before = self.lexicon.frame([-1]).index(-1)
        spans = enumerate(self.lexicon.tokenizer.list_spans(full), before)
        inside = {n: [x for x in blanks if start <= x < stop] for n, (start, stop) in spans}
        hidden = [number for number, found in inside.items() if found]
        ids, letters = list(one.ids), None if one.letters is None else list(one.letters)
        for number in hidden:
            ids[number] = self.lexicon.mask_id
            if letters is not None:
                letters[number] = []
        return Encoded(ids, letters), [number for number in hidden for _ in inside[number]]


@torch.no_grad()
def score_words(
    model: Encoder, lexicon: Lexicon, documents: Sequence[Sequence[str]], *, limit: int | None = None,
    rate: float = 0.15, batch_size: int = 64, on_progress: Callable[[int, int], None] | None = None,
) -> WordScores:  # fmt: skip
    """Perplexity and accuracy of a pretrained model on masked words of documents; the same are masked each time.

    `limit` is the most tokens of a piece, `rate` the part that is hidden.
    """
    part = read_documents(lexicon, documents, limit, has_next=model.config.has_next)
    if not part.ids:
        raise RegardError("documents must hold a word that the model knows to be scored, got none.")
    rows = Rows(part.ids, letters=part.letters, types=part.types, batch_size=batch_size, shuffle=False)
    hidden = Masked(
        rows, mask_id=lexicon.mask_id, vocab_size=lexicon.vocab_size, special=lexicon.special, rate=rate
    )  # fmt: skip
    place, done = next(model.parameters()).device, 0
    loss = right = count = follows = 0.0
    asked: Counter[int] = Counter()
    with pause_training(model):
        for batch in hidden.walk():
            here = batch.to(place)
            assert here.labels is not None
            chosen = here.labels != NO_LABEL
            states = model.encode(here.ids, here.lengths, spelling=here.spelling, types=here.types)
            words, wanted = model.predict_words(states[chosen]).float(), here.labels[chosen]
            loss += float(functional.cross_entropy(words, wanted, reduction="sum"))
            right, count = right + float((words.argmax(-1) == wanted).sum()), count + len(wanted)
            asked.update(wanted.tolist())
            if part.others is not None:
                others = torch.tensor([part.others[number] for number in batch.numbers.tolist()])
                follows += float((model.predict_next(states, here.lengths).argmax(-1).cpu() == others).sum())
            done += len(batch.numbers)
            if on_progress is not None:
                on_progress(done, len(part.ids))
    usual = max(asked.values(), default=0)
    score = None if part.others is None else 100 * follows / len(part.ids)
    return WordScores(math.exp(min(loss / count, 700)), 100 * right / count, int(count), 100 * usual / count, score)


def score_filler(
    run: str | os.PathLike[str], asked: Sequence[Any], *, device: str = "auto", batch_size: int = 64, bar: Bar = hide
) -> Result:
    """Evaluate a pretrained run on texts: perplexity and accuracy of masked words."""
    config = read_config(run)
    if config.get("head") == "none":
        raise RegardError(f"{run} has no head that answers: name a run that was trained for a task.")
    filler, rate = Filler.load(run, device), config.get("training", {}).get("rate")
    hidden = rate if isinstance(rate, float) and 0 < rate < 1 else 0.15
    options: dict[str, Any] = {"limit": filler.max_length, "rate": hidden, "batch_size": batch_size}
    ask = partial(score_words, filler.model, filler.lexicon, asked, **options)
    scores, seconds = time_answers(bar, "guessing", len(asked), ask)
    rows = [
        f"perplexity {scores.perplexity:8.2f}",
        f"accuracy   {scores.accuracy:8.2f}   of {scores.count} words;"
        f" always guessing the most frequent: {scores.baseline:.2f}",
    ]
    if scores.next is not None:
        rows.append(f"next       {scores.next:8.2f}   second texts told from others")
    return Result(asdict(scores), rows, [], seconds, len(asked))
