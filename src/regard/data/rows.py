"""Padded batches of single sequences with labels, and masking for masked language modelling."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core import RegardError
from regard.core.bits import mix
from regard.data.buckets import Buckets, Ids, draw_by, pad, send
from regard.data.tokens import PAD

# the label that torch's losses pass over
NO_LABEL = -100

LOW = 0xFFFFFFFF
# any two numbers: the same bits decide three things
FATE, OTHER = 0x9E3779B9, 0x85EBCA6B


class Labelled(NamedTuple):
    """A padded batch of sequences with labels; a length counts what is not padding.

    `labels` is one for each sequence, (batch,), or one for each token, (batch, tokens), with `pad_label` where there
    is no token. `numbers` says which of the sequences these are. `spelling` has the ids of each token's letters,
    (batch, tokens, letters), and `types` a number for each token. What was not given is None.
    """

    ids: Tensor
    lengths: Tensor
    labels: Tensor | None
    numbers: Tensor
    spelling: Tensor | None
    types: Tensor | None

    def to(self, device: torch.device | str) -> Labelled:
        """The batch on another device, without waiting for it."""
        return self._replace(**send(self._asdict(), device, "lengths"))


class Rows(Buckets):
    """A data loader of token sequences: padded batches, an epoch at a time.

    >>> rows = Rows([[7, 8, 9], [5]], [[0, 1, 0], [2]], batch_size=2, shuffle=False)
    >>> (batch,) = rows.walk()
    >>> batch.ids.tolist(), batch.labels.tolist(), batch.lengths.tolist()
    ([[7, 8, 9], [5, 0, 0]], [[0, 1, 0], [2, -100, -100]], [3, 1])

    `labels` has an int for each sequence, or for each a list with an int for every token; `letters` the ids of the
    letters of every token, `types` an int for every token. An empty sequence is one <pad> of length 0.

    Sizes, the order of an epoch, going on in its middle and shares of processes are as in `Batches`; other options are
    those of `Buckets`.
    """

    def __init__(
        self,
        sequences: Sequence[Ids],
        labels: Sequence[int] | Sequence[Ids] | None = None,
        *,
        letters: Sequence[Sequence[Ids]] | None = None,
        types: Sequence[Ids] | None = None,
        pad_label: int = NO_LABEL,
        **options: Any,
    ) -> None:
        self.sequences, self.labels, self.letters, self.types = sequences, labels, letters, types
        self.pad_label = pad_label
        lengths = [len(row) for row in sequences]
        for name, given in (("labels", labels), ("letters", letters), ("types", types)):
            if given is not None:
                _check(name, given, lengths)
        super().__init__(lengths, **options)
        self.longest = max(lengths[i] for i in self.kept.tolist())

    def make(self, numbers: Tensor) -> Labelled:
        chosen = numbers.tolist()
        ids, lengths = _pad([self.sequences[i] for i in chosen])
        types = None if self.types is None else _pad([self.types[i] for i in chosen])[0]
        labels = None if self.labels is None else self._label([self.labels[i] for i in chosen])
        spelling = None
        if self.letters is not None:
            words, _ = pad(list(itertools.chain(*(self.letters[i] for i in chosen))))
            spelling = torch.full((*ids.shape, max(1, words.shape[1])), PAD)
            spelling[find_tokens(ids, lengths), : words.shape[1]] = words
        return Labelled(ids, lengths, labels, numbers, spelling, types)

    def _label(self, labels: list[int | Ids]) -> Tensor:
        tags = [label for label in labels if not isinstance(label, int)]
        return _pad(tags, self.pad_label)[0] if tags else torch.tensor(labels, dtype=torch.long)


class Masked:
    """Masked language modelling: the batches of `Rows` with some tokens masked, and these as labels.

    >>> rows = Rows([[5, 6, 7, 8], [9, 10, 11]], batch_size=2, shuffle=False)
    >>> (batch,) = Masked(rows, mask_id=12, vocab_size=12, special={0, 1, 2, 3}, rate=0.5).walk()
    >>> batch.ids.tolist(), batch.labels.tolist()
    ([[5, 12, 12, 8], [9, 7, 12, 0]], [[-100, 6, 7, -100], [-100, 10, 11, -100]])

    Each token is chosen with a chance of `rate`, and of the first sequence at least one; `special` ones never are. Of
    ten that are chosen, eight become `mask_id`, one becomes any id below `vocab_size` that is not special, and one
    stays. A token that does not stay has no letters: they would tell the answer. What is chosen follows from the seed
    of the rows, the epoch, the sequence's number and the place in it: not from the batch or the process it comes in.
    """

    def __init__(
        self, rows: Rows, *, mask_id: int, vocab_size: int, special: Collection[int] = (), rate: float = 0.15
    ) -> None:
        if not 0 < rate <= 1:
            raise RegardError(f"rate, the fraction of the tokens to mask, must lie in (0, 1], got {rate}.")
        never = {*special, mask_id}
        self._never = torch.tensor(sorted(never))
        self._ordinary = torch.tensor([number for number in range(vocab_size) if number not in never])
        if not len(self._ordinary):
            raise RegardError(f"all {vocab_size} ids of the vocabulary are special: leave some to be predicted.")
        self.rows, self.mask_id, self.rate, self.dropped = rows, mask_id, rate, rows.dropped
        self.longest = rows.longest
        # so that there is always something to score
        self._first = next((n for n, row in enumerate(rows.sequences) if not never.issuperset(row)), -1)

    def __len__(self) -> int:
        return len(self.rows)

    def walk(self, epoch: int = 0, start: int = 0) -> Iterator[Labelled]:
        """The batches of an epoch, from number `start` on."""
        seeds = torch.randint(1 << 32, (2,), generator=draw_by(self.rows.seed, epoch)).tolist()
        for batch in self.rows.walk(epoch, start):
            yield self._hide(batch, seeds)

    def _hide(self, batch: Labelled, seeds: list[int]) -> Labelled:
        can = find_tokens(batch.ids, batch.lengths) & ~torch.isin(batch.ids, self._never)
        bits = _draw_bits(seeds, batch.numbers, batch.ids.shape[1]).masked_fill(~can, 1 << 32)
        is_first = (batch.numbers == self._first)[:, None]
        # where chance takes none, the nearest to it
        chosen = can & ((bits < int(self.rate * (1 << 32))) | (is_first & (bits == bits.amin(1, keepdim=True))))
        fate = mix(bits[chosen] ^ FATE)
        other = self._ordinary[(mix(bits[chosen] ^ OTHER) * len(self._ordinary)) >> 32]
        is_gone, ids = chosen.clone(), batch.ids.clone()
        is_gone[chosen] = is_lost = fate < int(0.9 * (1 << 32))
        ids[is_gone] = other.masked_fill(fate < int(0.8 * (1 << 32)), self.mask_id)[is_lost]
        labels = batch.ids.masked_fill(~chosen, self.rows.pad_label)
        spelling = None if batch.spelling is None else batch.spelling.masked_fill(is_gone[..., None], PAD)
        return batch._replace(ids=ids, labels=labels, spelling=spelling)


def _draw_bits(seeds: list[int], numbers: Tensor, width: int) -> Tensor:
    """32 pseudo-random bits for each place of each row, by the row's number and the place alone."""
    rows = mix((mix((numbers + seeds[0]) & LOW) + seeds[1]) & LOW)
    return mix((rows[:, None] + mix(torch.arange(width))) & LOW)


def find_tokens(ids: Tensor, lengths: Tensor) -> Tensor:
    """The mask of padding: True at tokens, False behind the end.

    >>> find_tokens(torch.tensor([[5, 6], [7, 0]]), torch.tensor([2, 1])).tolist()
    [[True, True], [True, False]]
    """
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


def _pad(rows: list[Ids], fill: int = PAD) -> tuple[Tensor, Tensor]:
    """As `pad`, and at least one place wide: attention over nothing has no meaning."""
    padded, lengths = pad(rows, fill)
    return (padded if padded.shape[1] else padded.new_full((len(rows), 1), fill)), lengths


def _check(name: str, given: Sequence[Any], lengths: Sequence[int]) -> None:
    if len(given) != len(lengths):
        raise RegardError(f"{name} must be as many as the sequences: {len(given)} for {len(lengths)}.")
    is_class = name == "labels" and len(given) > 0 and isinstance(given[0], int)
    for number, (entry, length) in enumerate(zip(given, lengths, strict=True)):
        if is_class != isinstance(entry, int):
            raise RegardError(f"{name} must be ints for sequences or lists for tokens, not both: see number {number}.")
        if not isinstance(entry, int) and len(entry) != length:
            raise RegardError(f"{name} of sequence {number} must be as many as its tokens: {len(entry)} for {length}.")
