"""A trained summarizer (sentence compression), its baselines and its metrics."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch

from regard.core import RegardError
from regard.data.compression import KEEP
from regard.data.words import cut_words, join_words
from regard.models.encoder import Encoder
from regard.models.layout import read_config
from regard.tasks.metrics.result import Bar, Result, hide, time_answers
from regard.tasks.reading.predict import find_logits
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.reading.warm_start import load_labeller, name_task
from regard.tasks.text.summarize_job import TASK
from regard.tasks.text.translator import Translator


@dataclass(frozen=True)
class Summary:
    """One sentence and its summary.

    Where words were kept or dropped, `kept` says which of `words`, and `scores` how probable it was that each is kept;
    a sentence that was written anew has neither. `unknown` counts the tokens that the model does not know, of
    `num_tokens` that were read.
    """

    source: str
    text: str
    kept: tuple[bool, ...] | None = None
    words: tuple[str, ...] = field(default=(), repr=False)
    scores: tuple[float, ...] = field(default=(), repr=False)
    unknown: int = 0
    num_tokens: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True)
class SummaryScores:
    """Metrics of summaries against references, all from 0 to 100: F1, exact matches, compression ratio.

    `f1` is the mean over sentences of the F1 of their words, in any case and order; `exact` is how many have the words
    of their reference, in any case; `ratio` is the words of all summaries for 100 of the sentences.
    """

    f1: float
    exact: float
    ratio: float
    count: int


class Summarizer:
    """A trained summarizer: an encoder that keeps or drops words and its tokenizer, or a translator that rewrites.

    >>> from regard.models.encoder import Config
    >>> lexicon = Lexicon.train(["the cat sat on the mat".split()], "spaces")
    >>> config = Config.preset("tiny", lexicon.vocab_size, head="tags", labels=("drop", "keep"))
    >>> (found,) = Summarizer(Encoder(config).eval(), lexicon).summarize(["The cat sat on the mat."], ratio=0.4)
    >>> len(found.words), found.kept.count(True), len(found.text.split()) <= 3
    (7, 3, True)
    """

    def __init__(self, model: Encoder | Translator, lexicon: Lexicon | None = None) -> None:
        if not isinstance(model, Translator) and lexicon is None:
            raise RegardError(f"Summarizer needs the lexicon by which its {type(model).__name__} reads, got none.")
        self.model, self.lexicon = model, lexicon

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Summarizer:
        """Load the summarizer of a run, extractive or abstractive; "auto" is a GPU where there is one."""
        place = pathlib.Path(folder)
        task = name_task(place)
        if task != TASK:
            raise RegardError(f"{place} is no run of summarize, it is one of {task[:40]}: name another.")
        if read_config(place)["model_type"] == Encoder.model_type:
            model, lexicon = load_labeller(place, device, "tags")
            if KEEP not in model.config.labels:
                raise RegardError(f"{place} has no label {KEEP!r} for a word: name another run, or train again.")
            return cls(model, lexicon)
        return cls(Translator.load(place, device))

    def summarize(
        self, texts: Sequence[str], *, ratio: float | None = None, batch_size: int = 64,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Summary]:  # fmt: skip
        """Summarize each sentence; a summary is never empty where its sentence is not.

        Words are kept that more probably are than not. With `ratio` it is that share of the words, the most probable.
        """
        if ratio is not None and not 0 < ratio <= 1:
            raise RegardError(f"ratio, the share of words to keep, must lie in (0, 1], got {ratio}.")
        if isinstance(texts, str):
            raise RegardError("texts must be a sequence of sentences, got one str: put it in a list.")
        if isinstance(self.model, Translator):
            if ratio is not None:
                raise RegardError(
                    "ratio is for a run that keeps or drops words, and this one writes anew: leave it out."
                )
            said = self.model.translate(texts, batch_size=batch_size, on_progress=on_progress)
            return [
                Summary(
                    one.source, one.text, words=_list_words(one.source), unknown=one.unknown, num_tokens=one.num_tokens
                )
                for one in said
            ]
        assert self.lexicon is not None
        lines = [_list_words(text) for text in texts]
        encoded = self.lexicon.encode_words(lines)
        logits = find_logits(self.model, encoded, batch_size=batch_size, on_progress=on_progress)
        number, found = self.model.config.labels.index(KEEP), []
        for text, words, one, rows in zip(texts, lines, encoded, logits, strict=True):
            scores = rows[one.starts or []].softmax(-1)[:, number].tolist() if words else []
            unknown = sum(one.ids[place] == self.lexicon.unk_id for place in one.starts or [])
            kept = _keep(text, words, choose(scores, ratio), scores)
            found.append(replace(kept, unknown=unknown, num_tokens=len(one.ids)))
        return found


def choose(scores: Sequence[float], ratio: float | None = None) -> tuple[bool, ...]:
    """Which words to keep, by their probabilities: at least one, if there is any.

    >>> choose([0.2, 0.6, 0.9, 0.5]), choose([0.2, 0.1, 0.3], 0.5), choose([0.2, 0.1])
    ((False, True, True, True), (True, False, True), (True, False))
    """
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    count = sum(x >= 0.5 for x in scores) if ratio is None else round_half_up(ratio * len(scores))
    chosen = set(order[: max(1, count)])
    return tuple(place in chosen for place in range(len(scores)))


def keep_all(texts: Iterable[str]) -> list[Summary]:
    """A baseline: keep all words."""
    return lead(texts, 1.0)


def lead(texts: Iterable[str], ratio: float) -> list[Summary]:
    """A baseline: keep the first words of each sentence (lead).

    >>> lead(["The cat sat on the mat."], 0.5)[0].text
    'The cat sat on'
    """
    found = []
    for text in texts:
        words = _list_words(text)
        count = max(1, round_half_up(ratio * len(words)))
        found.append(_keep(text, words, tuple(place < count for place in range(len(words))), ()))
    return found


def find_ratio(pairs: Iterable[tuple[str, str]]) -> float:
    """The compression ratio: words of all shorter sentences for one of the longer.

    >>> find_ratio([("The cat sat on the mat", "cat on mat")])
    0.5
    """
    counts = [[len(_list_words(text)) for text in pair] for pair in pairs]
    total = sum(long for long, _ in counts)
    if not total:
        raise RegardError("pairs must hold at least one sentence to find their ratio, got none.")
    return sum(short for _, short in counts) / total


def score_summaries(found: Sequence[Summary], references: Sequence[str]) -> SummaryScores:
    """F1, exact matches and compression ratio of summaries against references.

    >>> score_summaries(lead(["The cat sat on the mat"], 0.5), ["cat on mat"])
    SummaryScores(f1=33.33333333333333, exact=0.0, ratio=50.0, count=1)
    """
    if len(found) != len(references):
        raise RegardError(
            f"summaries and references must be as many, got {len(found)} and {len(references)}: one for each."
        )
    if not found:
        raise RegardError("summaries must hold at least one to be scored, got none.")
    f1 = exact = short = long = 0.0
    for one, reference in zip(found, references, strict=True):
        said, wanted = ([word.casefold() for word in _list_words(text)] for text in (one.text, reference))
        shared = sum((Counter(said) & Counter(wanted)).values())
        f1 += 2 * shared / (len(said) + len(wanted)) if said or wanted else 1.0
        exact += said == wanted
        short, long = short + len(said), long + len(_list_words(one.source))
    count = len(found)
    return SummaryScores(100 * f1 / count, 100 * exact / count, 100 * short / max(long, 1), count)


def score_summarizer(
    run: str | os.PathLike[str], asked: Sequence[Any], *, device: str = "auto", batch_size: int = 64, bar: Bar = hide
) -> Result:
    """Evaluate a run on pairs of a sentence and a shorter one, beside the baselines of all words and the first."""
    summarizer = Summarizer.load(run, device)
    texts, references = ([pair[i] for pair in asked] for i in (0, 1))
    found, seconds = time_answers(
        bar, "shortening", len(asked), partial(summarizer.summarize, texts, batch_size=batch_size)
    )
    share = find_ratio(asked)
    scores = {
        name: score_summaries(some, references)
        for name, some in (("run", found), ("keep all", keep_all(texts)), ("lead", lead(texts, share)))
    }
    rows = ["            F1   exact   words kept, %"]
    rows += [f"{name:8} {x.f1:6.2f}  {x.exact:6.2f}  {x.ratio:6.2f}" for name, x in scores.items()]
    rows.append(f"lead keeps the first words, as many as the references do ({100 * share:.0f} %)")
    entries = {name.replace(" ", "_"): asdict(x) for name, x in scores.items()}
    answers = [" ".join(one.text.splitlines()) for one in found]
    return Result({**entries.pop("run"), **entries}, rows, answers, seconds, len(found))


def round_half_up(x: float) -> int:
    """The nearest integer, halves rounded up."""
    return int(x + 0.5)


def _list_words(text: str) -> tuple[str, ...]:
    return tuple(word for word, _, _ in cut_words(text))


def _keep(text: str, words: tuple[str, ...], kept: tuple[bool, ...], scores: Sequence[float]) -> Summary:
    short = join_words([word for word, is_kept in zip(words, kept, strict=True) if is_kept])
    return Summary(text, short, kept, words, tuple(scores))
