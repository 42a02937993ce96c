"""Inference with an encoder: batches by length, long sentences in windows, logits in the order of the texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.data.rows import Rows
from regard.models.encoder import Encoder
from regard.tasks.reading.vocabulary import Encoded, Lexicon
from regard.tasks.reading.warm_start import limit_length, pause_training

# places for tokens in a batch, when a trained model is asked
PLACES = 2**13


def part_sentence(lexicon: Lexicon, one: Encoded, limit: int | None) -> list[Encoded]:
    """Split a sentence of words into windows of at most `limit` tokens, special tokens included; words stay whole.

    >>> lexicon = Lexicon.train([["the", "cat", "sat"]], "spaces")
    >>> (one,) = lexicon.encode_words([["the", "cat", "sat"]])
    >>> [part.ids for part in part_sentence(lexicon, one, 2)] == [one.ids[:2], one.ids[2:]]
    True

    Of a word that has more pieces than all of the limit the first are read.
    """
    if limit is None or len(one.ids) <= limit or not one.starts:
        return [one]
    before = one.starts[0]
    behind = len(lexicon.frame([-1])) - before - 1
    last, most = len(one.ids) - behind, max(1, limit - before - behind)
    groups: list[list[tuple[int, int]]] = []
    for start, stop in itertools.pairwise([*one.starts, last]):
        if not groups or stop - groups[-1][0][0] > most:
            groups.append([])
        groups[-1].append((start, stop))
    found = []
    for group in groups:
        first, stop = group[0][0], min(group[-1][1], group[0][0] + most)
        chosen = [*range(before), *range(first, stop), *range(last, len(one.ids))]
        letters = None if one.letters is None else [one.letters[place] for place in chosen]
        starts = [start - first + before for start, _ in group]
        found.append(Encoded([one.ids[place] for place in chosen], letters, starts))
    return found


def open_rows(encoded: Sequence[Encoded], labels: Any = None, **options: Any) -> Rows:
    """Batches of tokenized texts."""
    letters = [one.letters for one in encoded if one.letters is not None]
    return Rows([one.ids for one in encoded], labels, letters=letters or None, **options)


@torch.no_grad()
def find_logits(
    model: Encoder, encoded: Sequence[Encoded], *, batch_size: int = 64,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:  # fmt: skip
    """The logits of a trained model for each text, (labels) or (tokens, labels), in their order."""
    if not encoded:
        return []
    found: list[Tensor] = [torch.empty(0)] * len(encoded)
    place, done = next(model.parameters()).device, 0
    longest = max(len(one.ids) for one in encoded)
    rows = open_rows(encoded, batch_size=batch_size, max_tokens=max(PLACES, longest + 1), shuffle=False)
    with pause_training(model):
        for batch in rows.walk():
            here = batch.to(place)
            logits = model(here.ids, here.lengths, spelling=here.spelling).float().cpu()
            for number, length, row in zip(batch.numbers.tolist(), batch.lengths.tolist(), logits, strict=True):
                found[number] = row[:length] if row.ndim == 2 else row
            done += len(batch.numbers)
            if on_progress is not None:
                on_progress(done, len(encoded))
    return found


def find_word_logits(
    model: Encoder, lexicon: Lexicon, encoded: Sequence[Encoded], *, batch_size: int = 64,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:  # fmt: skip
    """The logits of a trained model for each word of sentences, (words, labels), in their order.

    A sentence for which the model has no positions is read in parts.
    """
    positions = limit_length(None, model)
    parts = [part_sentence(lexicon, one, positions) for one in encoded]
    whole = [*itertools.chain.from_iterable(parts)]
    answers = iter(find_logits(model, whole, batch_size=batch_size, on_progress=on_progress))
    return [torch.cat([next(answers)[one.starts or []] for one in windows]) for windows in parts]
