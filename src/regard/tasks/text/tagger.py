"""A trained tagger: a tag for each word of a sentence."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch

from regard.core import RegardError
from regard.data import UNK
from regard.data.words import HAN, cut_words
from regard.models.encoder import Encoder
from regard.tasks.metrics.labels import report_labels
from regard.tasks.metrics.result import Bar, Result, hide, time_answers
from regard.tasks.reading.predict import find_word_logits
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.reading.warm_start import load_labeller
from regard.views.labels import show_line

# no word that a text without spaces is cut into is longer
LONGEST = 12
# Chinese, Japanese and Thai
UNSPACED = re.compile(rf"([{HAN}\u0e01-\u0e7f]+)")


@dataclass(frozen=True)
class Tagged:
    """The prediction for one sentence: its words, tags and their probabilities. `unknown` counts words it never saw.

    `num_tokens` is how many tokens were read.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    scores: tuple[float, ...] = field(repr=False)
    unknown: int = 0
    num_tokens: int = field(default=0, repr=False, compare=False)


class Tagger:
    """A trained tagger: an encoder and its tokenizer.

    >>> from regard.models.encoder import Config
    >>> lexicon = Lexicon.train([["the", "cat", "sat"]], "spaces")
    >>> config = Config.preset("tiny", lexicon.vocab_size, head="tags", labels=("DET", "NOUN", "VERB"))
    >>> tagger = Tagger(Encoder(config).eval(), lexicon)
    >>> (found,) = tagger.tag(["The cat sat."])
    >>> found.words, len(found.tags)
    (('The', 'cat', 'sat', '.'), 4)

    A sentence is a list of words, or a text that is then cut: at spaces and punctuation, n't and 's for themselves;
    where a script has no spaces, as Chinese, into the longest words that the model knows.
    """

    def __init__(self, model: Encoder, lexicon: Lexicon) -> None:
        self.model, self.lexicon = model, lexicon

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Tagger:
        """Load the tagger of a run; "auto" is a GPU where there is one."""
        return cls(*load_labeller(pathlib.Path(folder), device, "tags"))

    def cut(self, text: str) -> list[str]:
        """Split a text into words."""
        found: list[str] = []
        for number, part in enumerate(UNSPACED.split(text)):
            # every other part is one that was split at
            found += self._match(part) if number % 2 else [word for word, _, _ in cut_words(part)]
        return found

    def _match(self, text: str) -> list[str]:
        found, start = [], 0
        while start < len(text):
            ends = range(min(len(text), start + LONGEST), start, -1)
            stop = next((end for end in ends if self._knows(text[start:end])), start + 1)
            found.append(text[start:stop])
            start = stop
        return found

    @cached_property
    def _tokens(self) -> set[str]:
        tokenizer = self.lexicon.tokenizer
        return set(tokenizer.list_tokens(range(tokenizer.vocab_size)))

    def _knows(self, word: str) -> bool:
        if self.lexicon.tokenizer.normalise(word) not in self._tokens:
            return False
        # a tokenizer may have a token that it never takes for a word
        (one,) = self.lexicon.encode_words([[word]])
        start = (one.starts or [0])[0]
        return len(one.ids) == len(self.lexicon.frame([UNK])) and one.ids[start] != self.lexicon.unk_id

    def tag(
        self, sentences: Sequence[str | Sequence[str]], *, batch_size: int = 64,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Tagged]:  # fmt: skip
        """Predict a tag for each word of each sentence."""
        if isinstance(sentences, str):
            raise RegardError("sentences must be a sequence of them, got one str: put it in a list.")
        lines = [self.cut(x) if isinstance(x, str) else list(x) for x in sentences]
        encoded = self.lexicon.encode_words(lines)
        logits = find_word_logits(self.model, self.lexicon, encoded, batch_size=batch_size, on_progress=on_progress)
        labels, found = self.model.config.labels, []
        for words, one, rows in zip(lines, encoded, logits, strict=True):
            best: Any = rows.softmax(-1).max(-1) if words else None
            tags = tuple(labels[number] for number in best.indices.tolist()) if words else ()
            scores = tuple(best.values.tolist()) if words else ()
            unknown = sum(one.ids[place] == self.lexicon.unk_id for place in one.starts or [])
            found.append(Tagged(tuple(words), tags, scores, unknown, len(one.ids)))
        return found


def score_tagger(
    run: str | os.PathLike[str], asked: Sequence[Any], *, device: str = "auto", batch_size: int = 64, bar: Bar = hide
) -> Result:
    """Evaluate a run on tagged sentences: accuracy and F1 of tags, and sentences without a wrong one."""
    tagger = Tagger.load(run, device)
    sentences = [words for words, _ in asked]
    ask = partial(tagger.tag, sentences, batch_size=batch_size)
    found, seconds = time_answers(bar, "tagging", len(asked), ask)
    said, right = ([tag for tags in rows for tag in tags] for rows in ([x.tags for x in found], [x for _, x in asked]))
    answers = [
        " ".join(f"{word}/{show_line(tag)}" for word, tag in zip(one.words, one.tags, strict=True)) for one in found
    ]
    result = report_labels(said, right, tagger.model.config.labels, seconds, answers=answers)
    exact = sum(one.tags == tuple(tags) for one, (_, tags) in zip(found, asked, strict=True))
    result.rows.insert(2, f"sentences {100 * exact / len(found):6.2f}   {exact} of {len(found)} without a wrong tag")
    result.entries["exact"] = exact
    return result
